//! What somebody says of a function.

use std::fmt;

use crate::prototype::Declared;
use crate::{AbiPlace, Cause, SaidBy, Type, abi};

/// What somebody says of a function.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its fixed parameters.
    pub params: Vec<Declared>,
    /// What it returns.
    pub result: Type,
    /// Whether more arguments may follow.
    pub variadic: bool,
    /// It takes numbers by reference, as Fortran does: what pointers to numbers point to is captured.
    pub by_reference: bool,
    /// Who says so.
    pub source: SaidBy,
}

impl Description {
    /// Whether two say the same of where values are, and of how wide they are and whether they have a sign.
    pub fn is_called_as(&self, other: &Description) -> bool {
        let same = |one: &Type, other: &Type| match (one.scalar(), other.scalar()) {
            (Some((one, width)), Some((other, others))) => one.is_float() == other.is_float() && width == others,
            _ => true,
        };
        self.agrees_with(other)
            && same(&self.result, &other.result)
            && self.params.iter().zip(&other.params).all(|(one, other)| same(&one.ctype, &other.ctype))
    }

    /// Whether two say the same of where values are.
    pub fn agrees_with(&self, other: &Description) -> bool {
        let places = |said: &Description| {
            let typed: Vec<(&str, &Type)> = said.params.iter().map(|param| ("", &param.ctype)).collect();
            abi::locations(&typed, Some(&said.result))
        };
        let same = |one: &Type, other: &Type| match (one.scalar(), other.scalar()) {
            (Some((one, width)), Some((other, others))) => {
                one.is_float() == other.is_float() && width.bytes == others.bytes
            }
            _ => true,
        };
        self.variadic == other.variadic
            && self.params.len() == other.params.len()
            && self.params.iter().zip(&other.params).all(|(one, other)| same(&one.ctype, &other.ctype))
            && agree(places(self), places(other))
    }
}

/// Whether two may be true of one function, which takes arguments and returns a result in these places. Places that
/// one of them does not know may be anywhere.
fn agree(one: (Vec<AbiPlace>, AbiPlace), other: (Vec<AbiPlace>, AbiPlace)) -> bool {
    let is_unknown = |location: &AbiPlace| {
        matches!(
            location,
            AbiPlace::Unobservable(Cause::UnknownType(_) | Cause::Behind(_) | Cause::MaybePacked | Cause::Disputed)
        )
    };
    let ours = one.0.iter().chain([&one.1]);
    let mut pairs = ours.zip(other.0.iter().chain([&other.1]));
    pairs.all(|(one, other)| one == other || is_unknown(one) || is_unknown(other))
}

impl fmt::Display for Description {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<&str> = self.params.iter().map(|param| param.c_type.as_str()).collect();
        let more = if self.variadic { ", ..." } else { "" };
        write!(formatter, "{} ({}{more})", self.result, params.join(", "))
    }
}
