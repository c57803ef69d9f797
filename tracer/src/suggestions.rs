//! Patterns that select no function, and which function may have been meant.

use std::path::Path;

use rtrace_model::{escape, names};
use rtrace_plan::{LibrarySource, Plan, PlanOptions, SelectedFunction, Selector};
use rtrace_symbolizer::{Function, select};

use crate::actions::RegionAction;
use crate::flight::Trigger;
use crate::target::Target;

/// Why nothing can be recorded, whatever the program does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No function has the name.
    #[error("no function of {libraries} matches {patterns}")]
    NoMatch {
        /// The libraries, for people.
        libraries: String,
        /// What was asked for, for people.
        patterns: String,
        /// Names that resemble it.
        near: Vec<String>,
    },
    /// No function that is traced has the name by which a trigger or an action asks for it.
    #[error("no traced function matches {triggers}")]
    NoTrigger {
        /// The triggers, or the action, for people.
        triggers: String,
        /// Names that resemble theirs.
        near: Vec<String>,
    },
    /// Functions match, and all are left out again.
    #[error("--exclude and --filter leave no function of {0}")]
    NothingLeft(String),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Error::NoMatch { near, .. } | Error::NoTrigger { near, .. } if !near.is_empty() => meant(near),
            Error::NoTrigger { .. } => "`rtrace plan` lists the functions that are traced".to_owned(),
            Error::NoMatch { .. } => {
                "of a library, only exported functions are traced, no static or hidden ones; without \
                                      --func, `rtrace plan` lists them all"
                    .to_owned()
            }
            Error::NothingLeft(_) => "without them, `rtrace plan` lists all functions".to_owned(),
        }
    }
}

/// What the user should know of what was asked for: libraries that are not known yet, patterns that match nothing,
/// libraries without the names that are asked for.
///
/// # Errors
/// No pattern matches, or nothing is left of what matches.
pub fn check(target: &Target, options: &PlanOptions) -> Result<Vec<String>, Error> {
    let unmatched = match check_patterns(&target.libraries, options) {
        // It may be a function of a library that is not known yet.
        Err(_) if !target.awaited.is_empty() => Vec::new(),
        checked => checked?,
    };
    let nameless = target.libraries.iter().filter(|source| options.statics && !source.image.has_all_names());
    let nameless = named(nameless);
    let stripped = (!nameless.is_empty())
        .then(|| format!("--static: only exported functions of {nameless} are known; their symbols may be installed"));
    Ok(target.remarks.iter().cloned().chain(unmatched).chain(stripped).collect())
}

fn check_patterns(libraries: &[LibrarySource], options: &PlanOptions) -> Result<Vec<String>, Error> {
    let of_names = |selectors: &'_ [Selector]| -> Vec<Selector> {
        selectors.iter().filter(|selector| !selector.is_of_source()).cloned().collect()
    };
    let matches = |selector: &Selector| libraries.iter().any(|source| any(source, |subject| selector.selects(subject)));
    let (include, exclude) = (of_names(&options.include), of_names(&options.exclude));
    let missing: Vec<&Selector> = include.iter().filter(|selector| !matches(selector)).collect();
    let all = named(libraries.iter());
    if !missing.is_empty() && missing.len() == options.include.len() {
        let mut near: Vec<String> = missing.iter().flat_map(|selector| nearest(selector, libraries)).collect();
        near.dedup();
        let patterns = missing.iter().map(|selector| format!("`{}`", escape(&selector.whole_text())));
        let patterns = patterns.collect::<Vec<_>>().join(" or ");
        return Err(Error::NoMatch { libraries: all, patterns, near });
    }
    let is_left = |source: &LibrarySource| any(source, |subject| options.selects(subject));
    let is_narrowed = !options.exclude.is_empty() || options.filter.is_some();
    if is_narrowed && !options.needs_sources() && !libraries.is_empty() && !libraries.iter().any(is_left) {
        return Err(Error::NothingLeft(all));
    }
    let of_option = |option: &str, selector: &Selector| {
        let near = nearest(selector, libraries);
        let hint = if near.is_empty() { String::new() } else { format!("; {}", meant(&near)) };
        format!("{option}: no function of {all} matches `{}`{hint}", selector.whole_text())
    };
    let mut remarks: Vec<String> = missing.into_iter().map(|selector| of_option("--func", selector)).collect();
    remarks.extend(exclude.iter().filter(|selector| !matches(selector)).map(|one| of_option("--exclude", one)));
    let is_asked = |source: &LibrarySource| {
        any(source, |subject| options.include.iter().any(|selector| selector.selects(subject)))
    };
    if !options.include.is_empty() {
        let without = libraries.iter().filter(|source| !source.exports.is_empty() && !is_asked(source));
        remarks.extend(without.map(|source| {
            format!("--func selects no function of {}: none of its calls is recorded", named(std::iter::once(source)))
        }));
    }
    Ok(remarks)
}

/// Whether one of the functions of a library, or of the symbols that are taken for none, is such.
fn any(source: &LibrarySource, is_such: impl Fn(&SelectedFunction<'_>) -> bool) -> bool {
    let functions = source.exports.all();
    let implementations = source.ifuncs.iter();
    let implementations =
        implementations.filter_map(|known| Some((source.exports.functions.get(known.function)?, known.address)));
    let mut all = functions.map(|function| (function, function.address)).chain(implementations);
    all.any(|(function, address)| is_such(&source.subject(function, address)))
        || source.exports.refused.iter().any(|refused| is_such(&source.symbol(&refused.name)))
}

/// The functions whose names resemble a pattern, as they are selected: of the libraries that the pattern is for.
fn nearest(selector: &Selector, libraries: &[LibrarySource]) -> Vec<String> {
    let libraries = libraries.iter().filter(|source| selector.is_about(&source.symbol("")));
    let functions = libraries.flat_map(|source| source.exports.all());
    let symbols =
        |function: &'_ Function| -> Vec<String> { function.symbols.iter().map(|symbol| symbol.name.clone()).collect() };
    resembling(&selector.text(), functions.map(|function| (function.name.as_str(), symbols(function))))
}

/// The functions whose names resemble a pattern: of those with this name and these symbols.
fn resembling<'a>(text: &str, functions: impl Iterator<Item = (&'a str, Vec<String>)>) -> Vec<String> {
    let plain = |name: &str| names::without_templates(name).replace("<…>", "");
    // Another version of a symbol, and another instance of a template, are near.
    let text = plain(text.split_once('@').map_or(text, |(symbol, _)| symbol));
    // Of a glob or an expression, the longest part that stands for itself.
    let parts = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':' | '~' | '.')));
    let Some(wanted) = parts.max_by_key(|part| part.len()).filter(|part| part.len() > 1) else { return Vec::new() };
    // What a glob leaves open at its end may be anything.
    let most = if text.ends_with('*') { wanted.len() } else { usize::MAX };
    let mut names: Vec<(String, String)> = Vec::new();
    for (whole, symbols) in functions {
        let bare = plain(whole.split_once('(').map_or(whole, |(bare, _)| bare));
        let last = bare.rsplit("::").next().unwrap_or(&bare);
        let keys = [whole, &bare, last].map(|key| key.get(..most.min(key.len())).unwrap_or(key));
        names.extend(keys.map(|key| (key.to_owned(), whole.to_owned())));
        names.extend(symbols.into_iter().map(|symbol| (symbol.clone(), symbol)));
    }
    let candidates: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    let mut found: Vec<String> = Vec::new();
    for near in select::near_names(wanted, &candidates) {
        for (_, whole) in names.iter().filter(|(name, _)| *name == near) {
            // What is selected by another name of it, such as a mangled one, is there already.
            if found.len() < SUGGESTED
                && !found.iter().any(|known| known == whole)
                && !whole.starts_with("_Z")
                && !whole.starts_with("_R")
            {
                found.push(whole.clone());
            }
        }
    }
    found
}

/// Refuses triggers of which none can ever be met.
///
/// # Errors
/// No function that is planned matches one of them.
pub fn check_triggers(plan: &Plan, triggers: &[Trigger]) -> Result<(), Error> {
    let regions = || plan.libraries.iter().flat_map(|library| &library.regions).map(|planned| &planned.region);
    if triggers.is_empty() || triggers.iter().any(|trigger| regions().any(|region| trigger.is_about(region))) {
        return Ok(());
    }
    let functions = || regions().map(|region| (region.name.as_str(), Vec::new()));
    let near = triggers.iter().flat_map(|trigger| resembling(trigger.function(), functions())).collect();
    let texts: Vec<String> = triggers.iter().map(|trigger| format!("`{}`", escape(trigger.text()))).collect();
    Err(Error::NoTrigger { triggers: format!("the trigger {}", texts.join(" or ")), near })
}

/// Refuses actions that can never be done.
///
/// # Errors
/// No function that is planned is meant by one of them.
pub fn check_actions(plan: &Plan, actions: &[RegionAction]) -> Result<(), Error> {
    let regions = || plan.libraries.iter().flat_map(|library| &library.regions).map(|planned| &planned.region);
    let Some(action) = actions.iter().find(|action| !regions().any(|region| action.is_about(region))) else {
        return Ok(());
    };
    let near = resembling(&action.pattern(), regions().map(|region| (region.name.as_str(), Vec::new())));
    Err(Error::NoTrigger { triggers: format!("`--on {}`", escape(&action.text())), near })
}

/// Names that are worth reading.
const SUGGESTED: usize = 5;

fn meant(near: &[String]) -> String {
    let near: Vec<String> = near.iter().map(|name| format!("`{}`", escape(name))).collect();
    format!("did you mean {}?", near.join(", "))
}

/// Libraries, for people.
fn named<'a>(libraries: impl Iterator<Item = &'a LibrarySource>) -> String {
    let name = |source: &LibrarySource| {
        let path = Path::new(&source.library.path);
        let name = path.file_name().map_or(source.library.path.clone(), |name| name.to_string_lossy().into_owned());
        format!("`{}`", escape(&name))
    };
    let names: Vec<String> = libraries.map(name).collect();
    match names.as_slice() {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} other libraries", rest.len())
        }
        _ => names.join(", "),
    }
}
