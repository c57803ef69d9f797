//! Prototypes and types of C on one line, as a table says them.
//!
//! No preprocessor, no attributes, no expressions: what headers say must be written out. A name that is not known is a
//! type without a size, which only matters where a value of it is passed.

use std::collections::HashMap;

use crate::lexer::{Lexer, Token};
use crate::{Field, Structure, Type, Width};

/// Types nested deeper than this are a mistake.
const DEEPEST: u32 = 40;

/// Structures with more members than this, theirs included, are a mistake; it bounds what copies of types take.
const MOST_MEMBERS: usize = 4096;

/// Types that have a name.
pub type Types = HashMap<String, Type>;

/// What a prototype says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The function's name.
    pub name: String,
    /// What it returns; [`Type::Void`] for nothing.
    pub result: Type,
    /// Its fixed parameters.
    pub params: Vec<Declared>,
    /// Whether more arguments may follow.
    pub variadic: bool,
}

/// A parameter or a member, as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its type.
    pub ctype: Type,
    /// Its type, as it is written.
    pub c_type: String,
}

/// Reads a prototype such as `ssize_t read(int fd, void *buf, size_t count)`.
///
/// # Errors
/// A message says what is wrong, and where.
pub fn parse(text: &str, types: &Types) -> Result<Prototype, String> {
    let mut parser = Parser { lexer: Lexer::new(text)?, types, depth: 0 };
    let base = parser.specifiers()?;
    let declarator = parser.declarator()?;
    parser.lexer.eat(";");
    parser.lexer.end()?;
    let name = declarator.name.ok_or_else(|| format!("a function's name expected in `{text}`"))?;
    let mut derivations = declarator.derivations.into_iter();
    let Some(Derivation::Function(list)) = derivations.next() else {
        return Err(format!("`{name}` is no function in `{text}`: `(` expected behind it"));
    };
    let Some(ParamList { params, variadic }) = list else {
        return Err(format!("`()` does not say which parameters `{name}` has: write `(void)` for none"));
    };
    let result = derived(base, derivations.as_slice());
    if matches!(result, Type::Function | Type::Array(..)) {
        return Err(format!("`{name}` cannot return an array or a function"));
    }
    let mut names: Vec<&str> = params.iter().filter_map(|param| param.name.as_deref()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two parameters are called `{}` in `{text}`", pair[0]));
    }
    if let Some(void) = params.iter().find(|param| param.ctype == Type::Void) {
        return Err(format!("a parameter of `{name}` is `{}`", void.c_type));
    }
    Ok(Prototype { name, result, params, variadic })
}

/// Reads a type such as `const char *` or `struct { long tv_sec; long tv_nsec; }`.
///
/// # Errors
/// A message says what is wrong, and where.
pub fn parse_type(text: &str, types: &Types) -> Result<Type, String> {
    let mut parser = Parser { lexer: Lexer::new(text)?, types, depth: 0 };
    let ctype = parser.type_name()?;
    parser.lexer.end()?;
    Ok(ctype)
}

/// Reads the type in parentheses, such as that behind `sizeof`, of a line that goes on.
///
/// # Errors
/// A message says what is wrong, and where.
pub fn type_in_parentheses(lexer: &mut Lexer, types: &Types) -> Result<Type, String> {
    lexer.expect("(")?;
    let mut parser = Parser { lexer: lexer.clone(), types, depth: 0 };
    let ctype = parser.type_name()?;
    let place = parser.lexer.place();
    lexer.go(place);
    lexer.expect(")")?;
    Ok(ctype)
}

/// Integers of the C library on 64-bit Linux: their bytes, whether they have a sign, and what they are called.
const INTEGERS: [(u8, bool, &str); 8] = [
    (1, true, "int8_t"),
    (2, true, "int16_t"),
    (4, true, "int32_t pid_t clockid_t wchar_t key_t"),
    (8, true, "int64_t ssize_t off_t off64_t loff_t ptrdiff_t intptr_t time_t clock_t suseconds_t blkcnt_t intmax_t"),
    (1, false, "uint8_t"),
    (2, false, "uint16_t"),
    (4, false, "uint32_t uid_t gid_t mode_t socklen_t id_t wint_t"),
    (8, false, "uint64_t size_t uintptr_t dev_t ino_t nlink_t nfds_t uintmax_t pthread_t"),
];

/// The types that every table knows.
pub fn known_types() -> Types {
    let integers = INTEGERS.iter().flat_map(|&(bytes, signed, names)| {
        names.split(' ').map(move |name| (name.to_owned(), Type::Integer { bytes, signed }))
    });
    integers.collect()
}

/// How many members a type has, with theirs.
fn weight(ctype: &Type) -> usize {
    match ctype {
        Type::Struct(structure) => 1 + structure.fields.iter().map(|field| weight(&field.ctype)).sum::<usize>(),
        Type::Pointer(to) | Type::Array(to, _) => 1 + weight(to),
        _ => 1,
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    types: &'a Types,
    depth: u32,
}

struct Declarator {
    name: Option<String>,
    /// From the name outwards.
    derivations: Vec<Derivation>,
}

enum Derivation {
    Pointer,
    /// Its size, if it is said as a number.
    Array(Option<u64>),
    /// The parameters, if they are said.
    Function(Option<ParamList>),
}

struct ParamList {
    params: Vec<Declared>,
    variadic: bool,
}

/// The type that declarators make of a base.
fn derived(base: Type, derivations: &[Derivation]) -> Type {
    derivations.iter().rev().fold(base, |inner, derivation| match derivation {
        Derivation::Pointer => Type::Pointer(Box::new(inner)),
        Derivation::Array(count) => Type::Array(Box::new(inner), count.unwrap_or(0)),
        Derivation::Function(_) => Type::Function,
    })
}

/// The words of an arithmetic type, in any order.
#[derive(Default)]
struct Words {
    longs: u32,
    short: bool,
    unsigned: bool,
    signed: bool,
    complex: bool,
    base: Option<Type>,
}

impl Words {
    /// Takes a word, if it is one of a type.
    fn take(&mut self, word: &str) -> bool {
        let flag = match word {
            "long" => {
                self.longs += 1;
                return true;
            }
            "short" => &mut self.short,
            "unsigned" => &mut self.unsigned,
            "signed" | "__signed__" => &mut self.signed,
            "_Complex" | "complex" | "__complex__" => &mut self.complex,
            _ => {
                let base = match word {
                    "void" => Type::Void,
                    "char" => Type::Char,
                    "int" => Type::Integer { bytes: 4, signed: true },
                    "__int128" => Type::Integer { bytes: 16, signed: true },
                    "float" => Type::Float,
                    "double" => Type::Double,
                    "_Bool" | "bool" => Type::Bool,
                    "_Float128" | "__float128" => Type::Vector(16),
                    "_Float16" => Type::Vector(2),
                    _ => return false,
                };
                return self.base.replace(base).is_none();
            }
        };
        *flag = true;
        true
    }

    fn is_empty(&self) -> bool {
        self.base.is_none() && !(self.longs > 0 || self.short || self.unsigned || self.signed || self.complex)
    }

    fn ctype(self) -> Option<Type> {
        let sign = self.signed || self.unsigned;
        let plain = match (self.base, self.longs, self.short) {
            (Some(Type::Char), 0, false) if sign => Type::Integer { bytes: 1, signed: self.signed },
            (Some(Type::Integer { bytes, .. }), 0, false) => Type::Integer { bytes, signed: !self.unsigned },
            (Some(Type::Integer { bytes: 4, .. }) | None, 0, true) => {
                Type::Integer { bytes: 2, signed: !self.unsigned }
            }
            (Some(Type::Integer { bytes: 4, .. }) | None, 1 | 2, false) if !self.complex => {
                Type::Integer { bytes: 8, signed: !self.unsigned }
            }
            (None, 0, false) if self.complex => Type::Double,
            (None, 0, false) => Type::Integer { bytes: 4, signed: !self.unsigned },
            (Some(Type::Double), 1, false) if !sign => Type::LongDouble,
            (Some(base), 0, false) if !sign => base,
            _ => return None,
        };
        match (self.complex, &plain) {
            (false, _) => Some(plain),
            (true, Type::Float | Type::Double | Type::LongDouble) => Some(Type::Complex(Box::new(plain))),
            (true, _) => None,
        }
    }
}

const IGNORED: [&str; 14] = [
    "const",
    "volatile",
    "restrict",
    "__restrict",
    "__restrict__",
    "__const",
    "extern",
    "static",
    "inline",
    "__inline",
    "_Noreturn",
    "register",
    "__extension__",
    "_Atomic",
];

impl Parser<'_> {
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth >= DEEPEST {
            return Err("nested too deeply".to_owned());
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn type_name(&mut self) -> Result<Type, String> {
        let base = self.specifiers()?;
        let declarator = self.declarator()?;
        match declarator.name {
            Some(name) => Err(format!("a type expected, but it is called `{name}`")),
            None => Ok(derived(base, &declarator.derivations)),
        }
    }

    /// The type that a declaration begins with.
    fn specifiers(&mut self) -> Result<Type, String> {
        let mut words = Words::default();
        let mut whole: Option<Type> = None;
        let from = self.lexer.place();
        while let Some(Token::Name(word)) = self.lexer.peek() {
            if IGNORED.contains(&word) {
                self.lexer.next();
            } else if matches!(word, "struct" | "union" | "enum") && whole.is_none() && words.is_empty() {
                self.lexer.next();
                whole = Some(self.tagged(word)?);
            } else if whole.is_none() && words.take(word) {
                self.lexer.next();
            } else if whole.is_none() && words.is_empty() {
                self.lexer.next();
                whole = Some(self.types.get(word).cloned().unwrap_or_else(|| Type::Named(word.to_owned())));
            } else {
                break;
            }
        }
        match whole {
            Some(whole) => Ok(whole),
            None if words.is_empty() => Err(self.lexer.wanted("a type")),
            None => words.ctype().ok_or_else(|| format!("`{}` is no type", self.lexer.text_since(from, None))),
        }
    }

    /// A structure, a union or an enumeration behind its keyword.
    fn tagged(&mut self, keyword: &str) -> Result<Type, String> {
        let tag = match self.lexer.peek() {
            Some(Token::Name(tag)) => {
                self.lexer.next();
                tag
            }
            _ => "",
        };
        let name = format!("{keyword} {tag}").trim_end().to_owned();
        if keyword == "enum" {
            return Ok(Type::Enum { name, width: Width { bytes: 4, signed: true } });
        }
        if self.lexer.eat("{") {
            let fields = self.deeper(|parser| parser.fields(keyword == "union"))?;
            return Ok(Type::Struct(Box::new(Structure { name, ..fields })));
        }
        if tag.is_empty() {
            return Err(self.lexer.wanted("a name or `{`"));
        }
        Ok(self.types.get(&name).cloned().unwrap_or(Type::Named(name)))
    }

    /// The members of a structure, laid out as C does.
    fn fields(&mut self, overlap: bool) -> Result<Structure, String> {
        let mut fields: Vec<Field> = Vec::new();
        let (mut end, mut size, mut align) = (0_u64, 0_u64, 1_u64);
        while !self.lexer.eat("}") {
            let base = self.specifiers()?;
            loop {
                let declarator = self.declarator()?;
                let ctype = derived(base.clone(), &declarator.derivations);
                let name = declarator.name.unwrap_or_default();
                let bytes = ctype.bytes().ok_or_else(|| format!("the size of the member `{name}` is not known"))?;
                let offset = if overlap { 0 } else { end.next_multiple_of(ctype.align()) };
                end = offset.checked_add(bytes).filter(|&end| end < 1 << 31).ok_or("too large a structure")?;
                size = size.max(end);
                align = align.max(ctype.align());
                fields.push(Field { name, offset, ctype, bits: None, tag: None });
                if !self.lexer.eat(",") {
                    break;
                }
            }
            self.lexer.expect(";")?;
        }
        if fields.iter().map(|field| weight(&field.ctype)).sum::<usize>() > MOST_MEMBERS {
            return Err(format!("a structure of more than {MOST_MEMBERS} members"));
        }
        let bytes = Some(size.next_multiple_of(align));
        Ok(Structure::plain(String::new(), bytes, align, fields))
    }

    fn declarator(&mut self) -> Result<Declarator, String> {
        self.deeper(Parser::declarator_inside)
    }

    fn declarator_inside(&mut self) -> Result<Declarator, String> {
        let mut pointers = 0;
        loop {
            match self.lexer.peek() {
                Some(Token::Sign("*" | "&" | "^")) => pointers += 1,
                Some(Token::Name(word)) if IGNORED.contains(&word) => {}
                _ => break,
            }
            self.lexer.next();
        }
        let is_group = self.lexer.peek() == Some(Token::Sign("("))
            && matches!(self.lexer.ahead(1), Some(Token::Sign("*" | "&" | "^")));
        let mut declarator = match self.lexer.peek() {
            Some(Token::Name(name)) => {
                self.lexer.next();
                Declarator { name: Some(name.to_owned()), derivations: Vec::new() }
            }
            _ if is_group => {
                self.lexer.next();
                let inner = self.declarator()?;
                self.lexer.expect(")")?;
                inner
            }
            _ => Declarator { name: None, derivations: Vec::new() },
        };
        loop {
            let derivation = match () {
                () if self.lexer.eat("[") => Derivation::Array(self.dimension()?),
                () if self.lexer.eat("(") => Derivation::Function(self.parameters()?),
                () => break,
            };
            declarator.derivations.push(derivation);
        }
        if pointers > DEEPEST {
            return Err("nested too deeply".to_owned());
        }
        declarator.derivations.extend((0..pointers).map(|_| Derivation::Pointer));
        if declarator.derivations.len() > DEEPEST as usize {
            return Err("nested too deeply".to_owned());
        }
        Ok(declarator)
    }

    fn dimension(&mut self) -> Result<Option<u64>, String> {
        let mut size = None;
        while !self.lexer.eat("]") {
            match self.lexer.next() {
                Some(Token::Number(number)) => size = u64::try_from(number).ok(),
                Some(_) => size = None,
                None => return Err(self.lexer.wanted("`]`")),
            }
        }
        Ok(size)
    }

    /// The parameters up to the closing parenthesis; nothing for `()`.
    fn parameters(&mut self) -> Result<Option<ParamList>, String> {
        if self.lexer.eat(")") {
            return Ok(None);
        }
        if (self.lexer.peek(), self.lexer.ahead(1)) == (Some(Token::Name("void")), Some(Token::Sign(")"))) {
            self.lexer.next();
            self.lexer.next();
            return Ok(Some(ParamList { params: Vec::new(), variadic: false }));
        }
        let mut params = Vec::new();
        loop {
            if self.lexer.eat("...") {
                self.lexer.expect(")")?;
                return Ok(Some(ParamList { params, variadic: true }));
            }
            params.push(self.deeper(Parser::parameter)?);
            if self.lexer.eat(")") {
                return Ok(Some(ParamList { params, variadic: false }));
            }
            if !self.lexer.eat(",") {
                return Err(self.lexer.wanted("`,` or `)`"));
            }
        }
    }

    fn parameter(&mut self) -> Result<Declared, String> {
        let from = self.lexer.place();
        let base = self.specifiers()?;
        let declarator = self.declarator()?;
        let hole = declarator.name.as_ref().and_then(|name| {
            let names = |place: &usize| {
                let mut at = self.lexer.clone();
                at.go(*place);
                at.peek() == Some(Token::Name(name))
            };
            (from..self.lexer.place()).rev().find(names)
        });
        let c_type = self.lexer.text_since(from, hole);
        let ctype = derived(base, &declarator.derivations).as_parameter();
        Ok(Declared { name: declarator.name, ctype, c_type })
    }
}
