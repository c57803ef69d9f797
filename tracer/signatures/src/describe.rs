//! From what somebody says of a function to its signature: places, columns, metrics.

use std::cell::RefCell;

use rtrace_model::{FunctionEvent, Role};

use crate::capture::{CaptureFault, RUNNING, Wanted};
use crate::description::Description;
use crate::prototype::Declared;
use crate::read::ValuePlace;
use crate::table::{Dialect, TableEntry};
use crate::{
    AbiPlace, At, Cause, ColumnType, Condition, DropReason, Dropped, FetchProgram, MetricSpec, MetricUnit, Op, OpCode,
    Operand, Param, SaidBy, Signature, Type, ValueSpec, abi, assemble, expression, operand,
};

/// Names that other columns of the trace have.
const TAKEN: [&str; 4] = ["result", "errno", "location", "call"];
/// Columns of one function that are looked at; no more would have room.
const MOST_COLUMNS: usize = 64;

/// What is wanted of one function.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The columns that the user asks for; `None` for those of the table, or all.
    pub columns: Option<&'a [Wanted]>,
    /// What the table says of it.
    pub entry: Option<&'a TableEntry>,
    /// The types of the table.
    pub dialect: &'a Dialect,
    /// Record no text.
    pub no_strings: bool,
    /// Calls may come by stubs, which read vector registers.
    pub stubs: bool,
}

/// Makes the signature of a function, with the program that fetches its values.
///
/// # Errors
/// A capture, a metric or a role makes no sense for this function: a message.
pub fn describe(name: &str, description: Description, wish: &Wish) -> Result<(Signature, FetchProgram), String> {
    DescribedFunction::new(name, description).captured(wish)
}

/// The same of a USDT probe, whose arguments are where its note says.
///
/// # Errors
/// As [`describe`].
pub fn marker(name: &str, note: &str, wish: &Wish) -> Result<(Signature, FetchProgram), String> {
    let param = |(number, (ctype, place)): (usize, (Type, Result<Operand, String>))| Param {
        name: format!("arg{number}"),
        c_type: ctype.to_string(),
        ctype,
        location: place.map_or_else(|text| AbiPlace::Unobservable(Cause::Operand(text)), AbiPlace::Operand),
    };
    let function = DescribedFunction {
        name: name.to_owned(),
        params: (1..).zip(operand::arguments(note)).map(param).collect(),
        result: None,
        result_location: AbiPlace::Unobservable(Cause::Void),
        variadic: false,
        by_reference: false,
        source: SaidBy::Note,
    };
    function.captured(wish)
}

/// A function whose values have places.
struct DescribedFunction {
    name: String,
    params: Vec<Param>,
    result: Option<Type>,
    result_location: AbiPlace,
    variadic: bool,
    by_reference: bool,
    source: SaidBy,
}

impl DescribedFunction {
    fn new(name: &str, description: Description) -> DescribedFunction {
        let Description { params, result, variadic, by_reference, source } = description;
        let result = Some(result).filter(|result| *result != Type::Void);
        let names = names(&params);
        let typed: Vec<(&str, &Type)> =
            names.iter().map(String::as_str).zip(params.iter().map(|it| &it.ctype)).collect();
        let (locations, result_location) = abi::locations(&typed, result.as_ref());
        let param = |((declared, location), name): ((Declared, AbiPlace), String)| Param {
            name,
            ctype: declared.ctype,
            c_type: declared.c_type,
            location,
        };
        let params = params.into_iter().zip(locations).zip(names.clone()).map(param).collect();
        DescribedFunction { name: name.to_owned(), params, result, result_location, variadic, by_reference, source }
    }

    /// What is captured of it, with the program that fetches its values.
    fn captured(self, wish: &Wish) -> Result<(Signature, FetchProgram), String> {
        let mut captured = CapturedColumns::default();
        for wanted in self.wanted(wish) {
            captured.add(&self, &wanted, wish)?;
        }
        let CapturedColumns { mut columns, mut dropped } = captured;
        let mut metrics = self.metrics(wish, &mut dropped)?;
        // The size of a message, or of what is read and written, is a column, too: a sum does not say which call it is of,
        // nor that a part is unknown.
        let has_size = |event: FunctionEvent| event.is_message() || event.is_io();
        if wish.columns.is_none() && wish.entry.and_then(|entry| entry.event).is_some_and(has_size) {
            columns.extend(metrics.iter().map(MetricSpec::as_column));
        }
        for (role, place) in wish.entry.iter().flat_map(|entry| &entry.roles) {
            let column = columns.iter_mut().find(|column| column.name == *place).map(|column| &mut column.role);
            let metric = metrics.iter_mut().find(|metric| metric.name == *place).map(|metric| &mut metric.role);
            let is_captured = column.is_some() || metric.is_some();
            column.into_iter().chain(metric).for_each(|target| *target = Some(*role));
            match is_captured {
                true => {}
                // The user's columns may leave it out, and it may be unobservable.
                false if wish.columns.is_some() || dropped.iter().any(|dropped| dropped.name == *place) => {}
                false => return Err(format!("the role `{}` is that of `{place}`, which is not captured", role.name())),
            }
        }
        for column in columns.iter_mut().filter(|column| column.role == Some(Role::Bytes)) {
            column.unit = Some("B".to_owned());
        }
        let (program, without_room) = assemble(&mut columns, &mut metrics);
        dropped.extend(without_room);
        let signature = Signature {
            name: self.name,
            params: self.params,
            result: self.result,
            result_location: self.result_location,
            variadic: self.variadic,
            source: self.source,
            columns,
            metrics,
            event: wish.entry.and_then(|entry| entry.event),
            dropped,
        };
        Ok((signature, program))
    }

    fn wanted(&self, wish: &Wish) -> Vec<Wanted> {
        if let Some(columns) = wish.columns {
            let mut wanted = columns.to_vec();
            // Without what it depends on, nobody could tell whether an error number means something.
            if let Some((depends_on, ..)) = wish.entry.and_then(|entry| entry.errno.as_ref())
                && let Some(place) = wanted.iter().position(|wanted| wanted.root == "errno")
                && !wanted[..place].iter().any(|known| known.name == *depends_on)
            {
                wanted.retain(|known| known.name != *depends_on);
                wanted.insert(place.min(wanted.len()), Wanted::plain(depends_on));
            }
            return wanted;
        }
        let mut wanted = match wish.entry.and_then(|entry| entry.capture.as_ref()) {
            Some(listed) => listed.clone(),
            None => self.params.iter().flat_map(|param| self.defaults(param)).collect(),
        };
        let mut add = |name: &str| {
            if !wanted.iter().any(|known: &Wanted| known.name == name) {
                wanted.push(Wanted::plain(name));
            }
        };
        if self.result.is_some() {
            add("result");
        }
        if wish.entry.is_some_and(|entry| entry.errno.is_some()) {
            add("errno");
        }
        wanted
    }

    /// What is captured of a parameter that nobody speaks of.
    fn defaults(&self, param: &Param) -> Vec<Wanted> {
        match &param.ctype {
            Type::Pointer(to) if self.by_reference && to.scalar().is_some() && **to != Type::Char => {
                vec![Wanted::target(&param.name)]
            }
            Type::Struct(structure) if structure.fields.iter().any(|field| field.ctype.scalar().is_some()) => {
                let fields = structure.fields.iter().filter(|field| !field.name.is_empty());
                fields.map(|field| Wanted::member(&param.name, &field.name)).collect()
            }
            _ => vec![Wanted::plain(&param.name)],
        }
    }

    /// Where a capture begins, with the name of its type.
    fn root(&self, name: &str) -> Result<(ValuePlace, &str), String> {
        if name == "result" {
            let result = self.result.as_ref().ok_or_else(|| format!("`{}` returns nothing", self.name))?;
            return Ok((ValuePlace::new(&self.result_location, result), ""));
        }
        let param = self.params.iter().find(|param| param.name == name).ok_or_else(|| self.no_param(name))?;
        let c_type = param.c_type.trim_start_matches("const ").trim_end_matches(['*', '[', ']', ' ']);
        Ok((ValuePlace::new(&param.location, &param.ctype), c_type))
    }

    fn no_param(&self, name: &str) -> String {
        let names: Vec<&str> = self.params.iter().map(|param| param.name.as_str()).collect();
        let more = if self.variadic { ", and more whose types are not known" } else { "" };
        match names.as_slice() {
            [] => format!("`{}` has no parameter `{name}`: it has none{more}", self.name),
            names => format!("`{}` has no parameter `{name}`: it has {}{more}", self.name, names.join(", ")),
        }
    }

    fn fetch(&self, wanted: &Wanted, wish: &Wish) -> Result<(ColumnType, Vec<Op>, At), CaptureFault> {
        if let Some(op) = wanted.running() {
            return Ok((ColumnType::Unsigned(4), vec![op], op.at));
        }
        let fetched = wanted.fetch(&|name| {
            let (place, c_type) = self.root(name)?;
            Ok((place, wish.dialect.parts.get(c_type)))
        })?;
        match fetched.1.iter().find(|op| op.code == OpCode::Vector && !wish.stubs) {
            Some(vector) => Err(Cause::Xmm(vector.number as u8).into()),
            None => Ok(fetched),
        }
    }

    fn metrics(&self, wish: &Wish, dropped: &mut Vec<Dropped>) -> Result<Vec<MetricSpec>, String> {
        let mut metrics = Vec::new();
        for (name, expression) in wish.entry.iter().flat_map(|entry| &entry.metrics) {
            let captures = wish.entry.and_then(|entry| entry.capture.as_ref());
            let unobservable = RefCell::new(None);
            let program_of = |name: &str| {
                let named = captures.and_then(|list| list.iter().find(|wanted| wanted.name == name));
                let wanted = named.cloned().unwrap_or_else(|| Wanted::plain(name));
                // Of calls that come by no stub, a sum would miss a part without a word.
                match self.fetch(&wanted, &Wish { stubs: false, ..*wish }) {
                    Ok((kind, program, _)) if kind.is_integer() => Ok(program),
                    Ok(_) => Err(format!("`{name}` is no integer")),
                    Err(CaptureFault::Wrong(message)) => Err(message),
                    Err(CaptureFault::Unobservable(reason)) => {
                        *unobservable.borrow_mut() = Some(reason);
                        Ok(vec![Op::number(0)])
                    }
                }
            };
            let program = expression::parse(expression, &wish.dialect.types, &program_of)?;
            if let Some(reason) = unobservable.into_inner() {
                let (name, c_type) = (name.clone(), format!("metric: {expression}"));
                dropped.push(Dropped { name, c_type, reason: DropReason::Unobservable(reason) });
                continue;
            }
            metrics.push(MetricSpec {
                name: name.clone(),
                unit: MetricUnit::of(name),
                role: None,
                expression: expression.clone(),
                at: program.iter().map(|op| op.at).max().unwrap_or(At::Enter),
                program,
            });
        }
        Ok(metrics)
    }
}

#[derive(Default)]
struct CapturedColumns {
    columns: Vec<ValueSpec>,
    dropped: Vec<Dropped>,
}

impl CapturedColumns {
    fn add(&mut self, function: &DescribedFunction, wanted: &Wanted, wish: &Wish) -> Result<(), String> {
        if wanted.root == "errno" {
            return self.add_errno(wish);
        }
        let c_type = match function.params.iter().find(|param| param.name == wanted.root) {
            Some(param) => param.c_type.clone(),
            None if wanted.running().is_some() => "int".to_owned(),
            None => function.result.as_ref().map(Type::to_string).unwrap_or_default(),
        };
        let is_same = |name: &str| name.eq_ignore_ascii_case(&wanted.name);
        if self.columns.iter().any(|column| is_same(&column.name)) {
            return Err(format!("two columns are called `{0}`: write `other_name=…` for one of them", wanted.name));
        }
        let mut drop = |reason| {
            self.dropped.push(Dropped { name: wanted.name.clone(), c_type: c_type.clone(), reason });
        };
        if wanted.is_text() && wish.no_strings {
            drop(DropReason::NoStrings);
            return Ok(());
        }
        match function.fetch(wanted, wish) {
            Ok(_) if self.columns.len() >= MOST_COLUMNS => drop(DropReason::NoRoom),
            Ok((ctype, program, at)) => self.columns.push(ValueSpec {
                name: wanted.name.clone(),
                ctype,
                c_type: if wanted.is_plain() { c_type } else { format!("{wanted} ({c_type})") },
                at,
                program,
                unit: None,
                role: None,
                condition: None,
            }),
            Err(CaptureFault::Unobservable(reason)) => drop(DropReason::Unobservable(reason)),
            Err(CaptureFault::Wrong(message)) => return Err(message),
        }
        Ok(())
    }

    fn add_errno(&mut self, wish: &Wish) -> Result<(), String> {
        let condition = wish.entry.and_then(|entry| entry.errno.as_ref());
        let condition = condition.filter(|(name, ..)| self.columns.iter().any(|column| column.name == *name)).map(
            |(name, comparison, value)| Condition { column: name.clone(), comparison: *comparison, value: *value },
        );
        self.columns.push(ValueSpec {
            name: "errno".to_owned(),
            ctype: ColumnType::Signed(4),
            c_type: "int".to_owned(),
            at: At::Exit,
            program: Op::ERRNO.into(),
            unit: None,
            role: Some(Role::Error),
            condition,
        });
        Ok(())
    }
}

/// The signature of a function of which nothing is known: the registers of the first six integer arguments.
///
/// # Errors
/// As [`describe`]; none without columns, as six registers and a result have a name each, and room.
pub fn raw(name: &str, columns: Option<&[Wanted]>) -> Result<(Signature, FetchProgram), String> {
    let word = || Type::Integer { bytes: 8, signed: false };
    let param = |_| Declared { name: None, ctype: word(), c_type: "?".to_owned() };
    let description = Description {
        params: (0..6).map(param).collect(),
        result: word(),
        variadic: false,
        by_reference: false,
        source: SaidBy::Raw,
    };
    let wish = Wish { columns, entry: None, dialect: &Dialect::default(), no_strings: false, stubs: false };
    describe(name, description, &wish)
}

/// Whether something that is no parameter is called so.
fn is_taken(name: &str) -> bool {
    TAKEN.contains(&name) || RUNNING.iter().any(|(known, _)| *known == name)
}

/// The names of parameters, each once: `argN` if its name is unknown.
fn names(params: &[Declared]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (number, param) in params.iter().enumerate() {
        let mut name = match &param.name {
            Some(name) if is_taken(name) => format!("arg_{name}"),
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("arg{}", number + 1),
        };
        while names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            name.push('_');
        }
        names.push(name);
    }
    names
}
