//! What `--args` asks for: functions and columns by name, such as `read(count) -> result, errno; open(path:text)`.

use globset::{GlobBuilder, GlobMatcher};

use crate::Error;
use crate::capture::Wanted;
use crate::lexer::{Lexer, Token};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct ValueSelection {
    items: Vec<SelectionItem>,
    /// Six registers of functions of which nothing is known.
    pub raw: bool,
}

#[derive(Clone, Debug)]
struct SelectionItem {
    pattern: String,
    matcher: GlobMatcher,
    /// `None` for what the table says, or all.
    columns: Option<Vec<Wanted>>,
}

impl ValueSelection {
    /// Reads a selection; an empty one is all functions whose signature is known.
    ///
    /// # Errors
    /// A part of it is wrong.
    pub fn parse(text: &str) -> Result<ValueSelection, Error> {
        let mut selection = ValueSelection::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            if part == "raw" {
                selection.raw = true;
                continue;
            }
            let faulty = |message| Error::Selection { selection: part.to_owned(), message };
            selection.items.push(SelectionItem::parse(part).map_err(faulty)?);
        }
        Ok(selection)
    }

    /// Whether a function is asked for, and which of its columns: `None` for those that the table says, or all.
    pub fn columns(&self, name: &str) -> Option<Option<&[Wanted]>> {
        if self.items.is_empty() {
            return Some(None);
        }
        self.items.iter().find(|item| item.matcher.is_match(name)).map(|item| item.columns.as_deref())
    }

    /// The parts that name no function of these.
    pub fn unmatched<'a>(&'a self, names: &[&str]) -> Vec<&'a str> {
        let is_unmatched = |item: &&SelectionItem| !names.iter().any(|name| item.matcher.is_match(name));
        self.items.iter().filter(is_unmatched).map(|item| item.pattern.as_str()).collect()
    }
}

impl SelectionItem {
    fn parse(text: &str) -> Result<SelectionItem, String> {
        let end = text.find(['(', ' ', '-']).unwrap_or(text.len());
        let (pattern, rest) = text.split_at(end);
        if pattern.is_empty() {
            return Err("the name of a function expected".to_owned());
        }
        let glob =
            GlobBuilder::new(pattern).build().map_err(|error| format!("`{pattern}` is no glob: {}", error.kind()))?;
        let mut lexer = Lexer::new(rest)?;
        let mut columns = None;
        if lexer.eat("(") {
            let listed = columns.get_or_insert_with(Vec::new);
            while !lexer.eat(")") {
                listed.push(Wanted::read(&mut lexer)?);
                if lexer.peek() != Some(Token::Sign(")")) {
                    lexer.expect(",")?;
                }
            }
        }
        if lexer.eat("->") {
            let listed = columns.get_or_insert_with(Vec::new);
            loop {
                listed.push(Wanted::read(&mut lexer)?);
                if !lexer.eat(",") {
                    break;
                }
            }
        }
        lexer.end()?;
        Ok(SelectionItem { pattern: pattern.to_owned(), matcher: glob.compile_matcher(), columns })
    }
}
