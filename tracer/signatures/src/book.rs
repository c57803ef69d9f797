//! All that is known of functions, and who is asked first.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rtrace_symbolizer::{Image, read_text};

use crate::capture::Wanted;
use crate::describe::{self, Wish};
use crate::description::Description;
use crate::dwarf;
use crate::selection::ValueSelection;
use crate::table::{Dialect, SignatureTable, TableContents, TableEntry};
use crate::{Error, FetchProgram, NotKnown, SaidBy, Signature, builtin};

/// Parts that the compiler appends to names of functions that it changed: they no longer have the parameters of the
/// source.
const CHANGED: [&str; 3] = [".isra", ".constprop", ".part"];

/// Names of functions that the compiler made of others, whose parameters are vectors of theirs (the Vector Function ABI).
const VECTOR: &str = "_ZGV";

/// Larger tables of the user's are refused, in bytes.
const LARGEST_TABLE: u64 = 16 << 20;

/// Tables for all users of a machine, `*.toml`.
pub const SITE_TABLES: &str = "/etc/rtrace/signatures";

/// All tables, in the order in which they are asked: that of the machine before the built-in ones.
///
/// # Errors
/// One of them is wrong; the message says where.
pub fn contents() -> Result<Vec<TableContents>, Error> {
    let tables = site_tables(Path::new(SITE_TABLES))?.into_iter().chain(builtin::tables()?);
    Ok(tables.map(|table| table.contents()).collect())
}

/// The tables in a folder, by name; none if it is not there.
fn site_tables(folder: &Path) -> Result<Vec<SignatureTable>, Error> {
    let refused = |cause| Error::Read { path: folder.to_owned(), cause };
    let files = match fs::read_dir(folder) {
        Ok(files) => files.map(|file| file.map(|file| file.path())).collect::<Result<Vec<_>, _>>().map_err(refused)?,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Vec::new(),
        Err(error) => return Err(refused(error)),
    };
    let mut files: Vec<PathBuf> =
        files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    files.iter().map(|path| SignatureTable::parse(&text_of(path)?, Some(path), "")).collect()
}

fn text_of(path: &Path) -> Result<String, Error> {
    read_text(path, LARGEST_TABLE).map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

/// Whether a symbol is that of a function with other parameters than the source says.
fn is_changed(symbol: &str) -> bool {
    CHANGED.iter().any(|part| symbol.contains(part)) || symbol.starts_with(VECTOR)
}

/// What is wanted of arguments and results.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The selection of `--args`; empty for all functions whose signature is known.
    pub selection: String,
    /// The user's table, `--args-from`.
    pub file: Option<PathBuf>,
    /// Never record strings.
    pub no_strings: bool,
    /// Calls may come by stubs, which read vector registers.
    pub stubs: bool,
}

/// A library whose functions are traced.
#[derive(Clone, Copy, Debug)]
pub struct TracedLibrary<'a> {
    /// The path by which programs know it. Its debug information is looked for by this.
    pub path: &'a Path,
    /// The path by which it can be opened here, which may lead through `/proc`.
    pub open: &'a Path,
    /// Its content.
    pub image: &'a Image,
    /// Programs that may call it, by paths that can be opened here.
    pub callers: &'a [PathBuf],
}

/// A function of a library.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its symbols, the preferred one first.
    pub symbols: &'a [&'a str],
    /// Its address, in the file's own terms.
    pub address: u64,
    /// Of a USDT probe: what its note says of its arguments.
    pub note: Option<&'a str>,
}

/// What is known of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Its signature, and the program that fetches what is captured.
    Signature(Box<Signature>, FetchProgram),
    /// Nothing, with the reason.
    Nothing(NotKnown),
    /// It is not asked for.
    Unasked,
}

/// All that is known of functions: the user's table, those of the machine, the built-in ones, and what is asked for.
#[derive(Debug)]
pub struct Book {
    selection: ValueSelection,
    no_strings: bool,
    stubs: bool,
    user: Option<SignatureTable>,
    tables: Vec<SignatureTable>,
}

impl Book {
    /// Reads the tables and what is asked for.
    ///
    /// # Errors
    /// One of them is wrong; the message says where.
    pub fn open(request: &Request) -> Result<Book, Error> {
        let mut book = match &request.file {
            Some(path) => Book::read(request, Some((path, &text_of(path)?)))?,
            None => Book::read(request, None)?,
        };
        book.tables.splice(..0, site_tables(Path::new(SITE_TABLES))?);
        Ok(book)
    }

    /// Takes the user's table as text, with the path that messages name.
    ///
    /// # Errors
    /// As [`open`](Book::open).
    pub fn read(request: &Request, table: Option<(&Path, &str)>) -> Result<Book, Error> {
        let selection = ValueSelection::parse(&request.selection)?;
        let user = table.map(|(path, text)| SignatureTable::parse(text, Some(path), "")).transpose()?;
        Ok(Book { selection, no_strings: request.no_strings, stubs: request.stubs, user, tables: builtin::tables()? })
    }

    /// What is known of functions of a library, one answer for each.
    ///
    /// # Errors
    /// What the user asks for, or the user's table says, makes no sense for one of them.
    pub fn of_library(&self, subject: &TracedLibrary, functions: &[Asked]) -> Result<Vec<Lookup>, Error> {
        let tables: Vec<(&SignatureTable, Dialect)> = (self.user.iter().chain(&self.tables))
            .filter(|table| table.is_about(subject.path, subject.image))
            .map(|table| (table, table.dialect(|symbol| subject.image.defines(symbol))))
            .collect();
        let empty = Dialect::default();
        let pages: Vec<Page> = functions.iter().map(|function| self.page(function, &tables, &empty)).collect();
        let found = look_up(subject, functions, &pages);
        functions.iter().zip(&pages).map(|(function, page)| self.answer(function, page, &found)).collect()
    }

    /// The parts of the selection that name none of these functions.
    pub fn unmatched<'a>(&'a self, symbols: &[&str]) -> Vec<&'a str> {
        self.selection.unmatched(symbols)
    }

    /// What the tables and the selection say of a function.
    fn page<'a>(
        &'a self,
        function: &Asked<'a>,
        tables: &'a [(&'a SignatureTable, Dialect)],
        empty: &'a Dialect,
    ) -> Page<'a> {
        let mut page = Page { name: "", columns: None, entry: None, dialect: empty, state: BookState::Unasked };
        let asked = function.symbols.iter().find_map(|symbol| Some((*symbol, self.selection.columns(symbol)?)));
        let Some((name, columns)) = asked else { return page };
        page.name = name;
        page.columns = columns;
        page.state = BookState::Asked;
        if function.symbols.iter().any(|symbol| is_changed(symbol)) {
            page.state = BookState::Changed;
            return page;
        }
        let entries = tables.iter().flat_map(|(table, dialect)| {
            let entry = function.symbols.iter().find_map(|symbol| Some((*symbol, table.entry(symbol)?)));
            entry.map(|(symbol, entry)| (symbol, *table, entry, dialect))
        });
        if let Some((symbol, table, entry, dialect)) = entries.into_iter().next() {
            page.name = if columns.is_some() { name } else { symbol };
            page.entry = Some((table, entry));
            page.dialect = dialect;
        }
        page
    }

    fn answer(&self, function: &Asked, page: &Page, found: &[dwarf::DwarfFindings]) -> Result<Lookup, Error> {
        match page.state {
            BookState::Unasked => return Ok(Lookup::Unasked),
            BookState::Changed => return Ok(Lookup::Nothing(NotKnown::Changed)),
            BookState::Asked if page.asks_only_where() => return page.raw(page.columns),
            BookState::Asked => {}
        }
        if let Some(note) = function.note {
            return page.marker(note, self.no_strings);
        }
        let definition = found.iter().find_map(|found| found.definitions.get(&function.address));
        let refused = found.iter().find_map(|found| found.refused.get(&function.address));
        let mut declarations =
            function.symbols.iter().flat_map(|symbol| found.iter().filter_map(|found| found.declarations.get(*symbol)));
        let description = match (self.prototype(page)?, definition) {
            (Some(description), Some(definition)) if page.is_users() => {
                self.check(page, &description, definition)?;
                description
            }
            (Some(description), _) => description,
            (None, Some(definition)) => definition.clone(),
            (None, None) => match declarations.next().filter(|_| refused.is_none()) {
                Some(Some(declared)) => declared.clone(),
                Some(None) => return Ok(Lookup::Nothing(NotKnown::Contradiction)),
                None if self.selection.raw => return page.raw(None),
                None => return Ok(Lookup::Nothing(refused.copied().unwrap_or(NotKnown::Silence))),
            },
        };
        let wish = Wish {
            columns: page.columns,
            entry: page.entry.map(|(_, entry)| entry),
            dialect: page.dialect,
            no_strings: self.no_strings,
            stubs: self.stubs,
        };
        let source = description.source.clone();
        let (signature, program) = describe::describe(page.name, description, &wish).map_err(|message| {
            // What the user's columns make of it is the selection's fault.
            match (page.columns, page.entry) {
                (None, Some((table, entry))) => table.fault(entry, message),
                _ => Error::Selection { selection: page.name.to_owned(), message: format!("{message} ({source})") },
            }
        })?;
        Ok(Lookup::Signature(Box::new(signature), program))
    }

    fn prototype(&self, page: &Page) -> Result<Option<Description>, Error> {
        let Some((table, entry)) = page.entry else { return Ok(None) };
        table.description(entry, page.dialect)
    }

    /// Whether what the user says of a function can be true.
    fn check(&self, page: &Page, said: &Description, definition: &Description) -> Result<(), Error> {
        match page.entry {
            Some((table, entry)) if !said.agrees_with(definition) => {
                let message =
                    format!("`{}` is `{}` there, but `{}` by {}", page.name, said, definition, definition.source);
                Err(table.fault(entry, message))
            }
            _ => Ok(()),
        }
    }
}

/// What is to be said of one function.
struct Page<'a> {
    /// The symbol by which it is asked for, or known.
    name: &'a str,
    columns: Option<&'a [Wanted]>,
    entry: Option<(&'a SignatureTable, &'a TableEntry)>,
    dialect: &'a Dialect,
    state: BookState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BookState {
    Unasked,
    Changed,
    Asked,
}

impl Page<'_> {
    fn is_users(&self) -> bool {
        self.entry.is_some_and(|(table, entry)| matches!(table.source(entry), SaidBy::File(..)))
    }

    /// Whether nothing is asked for but where calls run, for which nothing needs to be known of the function.
    fn asks_only_where(&self) -> bool {
        self.columns
            .is_some_and(|columns| !columns.is_empty() && columns.iter().all(|wanted| wanted.running().is_some()))
    }

    /// What the note of a USDT probe says of its arguments.
    fn marker(&self, note: &str, no_strings: bool) -> Result<Lookup, Error> {
        let wish = Wish { columns: self.columns, entry: None, dialect: self.dialect, no_strings, stubs: false };
        let (signature, program) = describe::marker(self.name, note, &wish)
            .map_err(|message| Error::Selection { selection: self.name.to_owned(), message })?;
        Ok(Lookup::Signature(Box::new(signature), program))
    }

    /// What there is of a function of which nothing is known.
    fn raw(&self, columns: Option<&[Wanted]>) -> Result<Lookup, Error> {
        let (signature, program) = describe::raw(self.name, columns)
            .map_err(|message| Error::Selection { selection: self.name.to_owned(), message })?;
        Ok(Lookup::Signature(Box::new(signature), program))
    }

    /// Whether debug information is to say something: the parameters, or whether the user is right.
    fn needs_debug_information(&self) -> bool {
        let has_prototype = self.entry.is_some_and(|(_, entry)| entry.c.is_some());
        self.state == BookState::Asked && !self.asks_only_where() && (!has_prototype || self.is_users())
    }

    /// How many pointers its captures follow.
    fn levels(&self) -> u32 {
        let listed = self.entry.and_then(|(_, entry)| entry.capture.as_deref()).unwrap_or_default();
        let wanted = listed.iter().chain(self.columns.unwrap_or_default());
        wanted.map(Wanted::levels).max().unwrap_or(0)
    }
}

/// Asks debug information: that of the library, then that of the programs that call it.
fn look_up(subject: &TracedLibrary, functions: &[Asked], pages: &[Page]) -> Vec<dwarf::DwarfFindings> {
    let open: Vec<(&Asked, &Page)> = functions
        .iter()
        .zip(pages)
        .filter(|(one, page)| one.note.is_none() && page.needs_debug_information())
        .collect();
    let levels = open.iter().map(|(_, page)| page.levels()).max().unwrap_or(0);
    if open.is_empty() {
        return Vec::new();
    }
    let addresses: HashSet<u64> = open.iter().map(|(function, _)| function.address).collect();
    let local = subject.image.local_functions();
    let wanted = dwarf::WantedFunctions { addresses, local, names: HashSet::new(), levels };
    let library =
        dwarf::read(subject.path, subject.open, subject.image, &wanted, |path| SaidBy::Library(path.to_owned()));
    let is_silent = |(function, page): &&(&Asked, &Page)| {
        !library.definitions.contains_key(&function.address) && page.entry.is_none_or(|(_, entry)| entry.c.is_none())
    };
    let names: HashSet<String> = open
        .iter()
        .filter(is_silent)
        .flat_map(|(function, _)| function.symbols.iter().map(|symbol| (*symbol).to_owned()))
        .collect();
    let wanted = dwarf::WantedFunctions { names, levels, ..dwarf::WantedFunctions::default() };
    let mut found = vec![library];
    for caller in subject.callers {
        if wanted.names.is_empty() {
            break;
        }
        let Ok(image) = Image::open(caller) else { continue };
        found.push(dwarf::read(caller, caller, &image, &wanted, |path| SaidBy::Caller(path.to_owned())));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::table::TableOrigin;

    #[test]
    fn tables_of_the_machine_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(site_tables(&folder.path().join("none")).unwrap().is_empty());
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let table = "[library]\nnames = [\"libsolve.so\"]\nversion = \"2.1\"\n[[function]]\nc = \"int solve(int n)\"\n";
        write("b.toml", table);
        write("a.toml", "[[function]]\nc = \"int f(void)\"\n");
        write("notes.txt", "no table");
        let found: Vec<TableContents> =
            site_tables(folder.path()).unwrap().iter().map(SignatureTable::contents).collect();
        assert_eq!(found[0].functions, [("f".to_owned(), Some("int f(void)".to_owned()))]);
        assert_eq!(found[1].origin, TableOrigin::File(folder.path().join("b.toml")));
        assert_eq!((found[1].libraries[0].as_str(), found[1].version.as_str()), ("libsolve.so", "2.1"));
        write("c.toml", "[library]\nname = 1\n");
        assert!(site_tables(folder.path()).unwrap_err().to_string().contains("c.toml"));
    }
}
