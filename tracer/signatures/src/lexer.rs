//! Words of one line: of prototypes, captures and expressions.

/// A word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A name or a keyword.
    Name(&'a str),
    /// An integer.
    Number(i64),
    /// Anything else: one or more signs that belong together.
    Sign(&'a str),
}

/// Signs of more than one character, the longest first.
const SIGNS: [&str; 10] = ["...", "[..", "->", ">>", "<<", "<=", ">=", "==", "!=", "&&"];
/// A longer line is a mistake.
const LONGEST: usize = 16 << 10;

/// A line that is read word by word.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    /// Each word, with where it begins and ends.
    words: Vec<(Token<'a>, usize, usize)>,
    place: usize,
}

impl<'a> Lexer<'a> {
    /// Splits a line into words.
    pub fn new(text: &'a str) -> Result<Lexer<'a>, String> {
        if text.len() > LONGEST {
            return Err(format!("longer than {LONGEST} bytes"));
        }
        let mut words = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { break };
            let length = match first {
                letter if is_letter(letter) => rest.find(|next| !is_letter(next)).unwrap_or(rest.len()),
                _ => SIGNS.iter().find(|sign| rest.starts_with(**sign)).map_or(first.len_utf8(), |sign| sign.len()),
            };
            let word = &rest[..length];
            let token = match first {
                '0'..='9' => Token::Number(number(word).ok_or_else(|| format!("`{word}` is not an integer"))?),
                letter if is_letter(letter) => Token::Name(word),
                _ => Token::Sign(word),
            };
            let start = text.len() - rest.len();
            words.push((token, start, start + length));
            rest = &rest[length..];
        }
        Ok(Lexer { text, words, place: 0 })
    }

    /// The next word, which stays the next one.
    pub fn peek(&self) -> Option<Token<'a>> {
        self.ahead(0)
    }

    /// A word further on.
    pub fn ahead(&self, words: usize) -> Option<Token<'a>> {
        self.words.get(self.place + words).map(|(token, ..)| *token)
    }

    /// Takes the next word.
    pub fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.place += 1;
        Some(token)
    }

    /// Takes the next word if it is this sign.
    pub fn eat(&mut self, sign: &str) -> bool {
        let is_next = self.peek() == Some(Token::Sign(sign));
        self.place += usize::from(is_next);
        is_next
    }

    /// Takes the next word, which must be this sign.
    pub fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.eat(sign) {
            true => Ok(()),
            false => Err(self.wanted(&format!("`{sign}`"))),
        }
    }

    /// Takes the next word, which must be a name.
    pub fn name(&mut self, what: &str) -> Result<&'a str, String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                self.place += 1;
                Ok(name)
            }
            _ => Err(self.wanted(what)),
        }
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.wanted("the end")),
        }
    }

    /// That something else is needed here.
    pub fn wanted(&self, what: &str) -> String {
        match self.words.get(self.place) {
            Some(&(_, start, end)) => format!("{what} expected, not `{}`, in `{}`", &self.text[start..end], self.text),
            None => format!("{what} expected at the end of `{}`", self.text),
        }
    }

    /// Where the next word is, to come back to it.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Goes back, or forward, to a word.
    pub fn go(&mut self, place: usize) {
        self.place = place;
    }

    /// The text of the words from one to the next one, without that at `hole`.
    pub fn text_since(&self, from: usize, hole: Option<usize>) -> String {
        let mut text = String::new();
        let mut end = None;
        for (place, &(_, start, stop)) in self.words.iter().enumerate().take(self.place).skip(from) {
            if end.is_some_and(|end| end < start) && !text.ends_with(' ') {
                text.push(' ');
            }
            if hole != Some(place) {
                text.push_str(&self.text[start..stop]);
            }
            end = Some(stop);
        }
        text.trim_end().to_owned()
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '$'
}

fn number(word: &str) -> Option<i64> {
    let word = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
