//! Expressions of metrics, such as `max(result, 0)` or `2 * m * n * k`, and conditions, such as `result < 0`.

use crate::lexer::{Lexer, Token};
use crate::prototype::{self, Types};
use crate::{Comparison, Op, OpCode};

/// Expressions nested deeper than this are a mistake.
const DEEPEST: u32 = 20;

/// Reads an expression: the operations that compute it, where `program_of` knows those of names.
///
/// # Errors
/// A message says what is wrong; what `program_of` does not know is told by it.
pub fn parse(
    text: &str,
    types: &Types,
    program_of: &dyn Fn(&str) -> Result<Vec<Op>, String>,
) -> Result<Vec<Op>, String> {
    let mut reader = ExpressionParser { lexer: Lexer::new(text)?, types, program_of, program: Vec::new(), depth: 0 };
    reader.sum()?;
    reader.lexer.end()?;
    Ok(reader.program)
}

/// Reads a condition: the name that is compared, how, and with what.
///
/// # Errors
/// A message says what is wrong.
pub fn condition(text: &str) -> Result<(String, Comparison, i64), String> {
    let mut lexer = Lexer::new(text)?;
    let name = lexer.name("`result`")?.to_owned();
    let comparison = match lexer.next() {
        Some(Token::Sign("<")) => Comparison::Less,
        Some(Token::Sign("<=")) => Comparison::LessOrEqual,
        Some(Token::Sign("==")) => Comparison::Equal,
        Some(Token::Sign("!=")) => Comparison::NotEqual,
        Some(Token::Sign(">=")) => Comparison::GreaterOrEqual,
        Some(Token::Sign(">")) => Comparison::Greater,
        _ => return Err(format!("a comparison such as `{name} < 0` expected in `{text}`")),
    };
    let sign = if lexer.eat("-") { -1 } else { 1 };
    let value = match lexer.next() {
        Some(Token::Number(number)) => sign * number,
        Some(Token::Name("NULL")) => 0,
        _ => return Err(format!("a number expected at the end of `{text}`")),
    };
    lexer.end()?;
    Ok((name, comparison, value))
}

struct ExpressionParser<'a> {
    lexer: Lexer<'a>,
    types: &'a Types,
    program_of: &'a dyn Fn(&str) -> Result<Vec<Op>, String>,
    program: Vec<Op>,
    depth: u32,
}

impl ExpressionParser<'_> {
    fn sum(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("nested too deeply".to_owned());
        }
        self.product()?;
        loop {
            let code = match () {
                () if self.lexer.eat("+") => OpCode::Add,
                () if self.lexer.eat("-") => OpCode::Subtract,
                () => break,
            };
            self.product()?;
            self.program.push(Op::binary(code));
        }
        self.depth -= 1;
        Ok(())
    }

    fn product(&mut self) -> Result<(), String> {
        self.factor()?;
        while self.lexer.eat("*") {
            self.factor()?;
            self.program.push(Op::binary(OpCode::Multiply));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<(), String> {
        if self.lexer.eat("(") {
            self.sum()?;
            return self.lexer.expect(")");
        }
        match self.lexer.next() {
            Some(Token::Number(number)) => {
                let number = i32::try_from(number).map_err(|_| format!("`{number}` has more than 32 bits"))?;
                self.program.push(Op::number(number));
            }
            Some(Token::Name("sizeof")) => {
                let ctype = prototype::type_in_parentheses(&mut self.lexer, self.types)?;
                let bytes = ctype.bytes().and_then(|bytes| i32::try_from(bytes).ok());
                self.program.push(Op::number(bytes.ok_or("the size of the type is not known")?));
            }
            Some(Token::Name(name @ ("max" | "min"))) if self.lexer.eat("(") => {
                self.sum()?;
                self.lexer.expect(",")?;
                self.sum()?;
                self.lexer.expect(")")?;
                self.program.push(Op::binary(if name == "max" { OpCode::Max } else { OpCode::Min }));
            }
            Some(Token::Name(name)) => {
                let program = (self.program_of)(name)?;
                self.program.extend(program);
            }
            _ => return Err(self.lexer.wanted("a value before this place")),
        }
        Ok(())
    }
}
