//! Defaults from a file: options of verbs, as they would stand on the command line.
//!
//! They are put in front of what the user typed, and each is left out that the user gave, or that conflicts with what
//! the user gave: so the command line always decides. Everything in the file is checked, also what is not used.
//!
//! A file may name commands that rtrace runs. So it is read only if nobody else than the caller and root could have
//! written it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::error::ErrorKind as Wrong;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::args;
use super::message::{Hint as _, tell};

/// That of a machine, for all its users.
const SITE: &str = "/etc/rtrace/config.toml";

/// Its place in the folder of configurations.
const PLACE: &str = "rtrace/config.toml";

/// Larger files are a mistake.
const LARGEST: u64 = 1 << 20;

/// The option without which the file is read, by its name in the definition.
const NO_CONFIG: &str = "no_config";

/// The command line with the defaults of the verb that it names.
///
/// # Errors
/// The file cannot be read, or something in it is wrong: the message names the line.
pub fn complete(words: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let mut command = args::command();
    command.build();
    let Some((place, name)) = verb(&words, &command) else { return Ok(words) };
    let Some(verb) = command.find_subcommand(&name) else { return Ok(words) };
    // Nothing is given where help is asked for. What is wrong is said when all is read for good.
    let given = command.clone().ignore_errors(true).try_get_matches_from(&words).ok();
    let Some((_, given)) = given.as_ref().and_then(ArgMatches::subcommand) else { return Ok(words) };
    if given.get_flag(NO_CONFIG) {
        return Ok(words);
    }
    let mut defaults: Vec<Default> = Vec::new();
    for path in [of_user(|name| std::env::var_os(name)), Some(SITE.into())].into_iter().flatten() {
        let Some(text) = read(&path)? else { continue };
        let mut further = parse(&path, &text, &command)?;
        // The user's file decides.
        let is_open = |of: &Default| {
            let option = find(verb, &of.option);
            let known = defaults.iter().filter_map(|known| find(verb, &known.option));
            option.is_some_and(|option| !known.into_iter().any(|known| excludes(verb, option, known)))
        };
        further.retain(|of| of.verb == name && is_open(of));
        defaults.extend(further);
    }
    let mut words = words;
    let used = defaults.into_iter().filter(|default| !is_decided(verb, &default.option, given));
    let used: Vec<OsString> = used.map(|default| default.word.into()).collect();
    words.splice(place..place, used);
    Ok(words)
}

/// The verb, and the place behind it.
fn verb(words: &[OsString], command: &Command) -> Option<(usize, String)> {
    let place = words.iter().skip(1).position(|word| !word.as_encoded_bytes().starts_with(b"-"))? + 1;
    let name = words[place].to_str()?;
    command.find_subcommand(name).map(|verb| (place + 1, verb.get_name().to_owned()))
}

/// Whether the user gave an option, or one with which it conflicts.
fn is_decided(verb: &Command, option: &str, given: &ArgMatches) -> bool {
    let is_given = |argument: &Arg| given.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
    let Some(argument) = find(verb, option) else { return false };
    verb.get_arguments().filter(|other| is_given(other)).any(|other| excludes(verb, argument, other))
}

/// Whether only one of two options can be given: they are the same, or in conflict.
fn excludes(verb: &Command, one: &Arg, other: &Arg) -> bool {
    let conflicts =
        |one: &Arg, with: &Arg| verb.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == with.get_id());
    one.get_id() == other.get_id() || conflicts(one, other) || conflicts(other, one)
}

fn find<'a>(verb: &'a Command, option: &str) -> Option<&'a Arg> {
    verb.get_arguments().find(|argument| argument.get_long() == Some(option))
}

/// An option that a file gives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Default {
    verb: String,
    option: String,
    /// As it would be typed.
    word: String,
}

/// Where the file is, whether there is one or not.
fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_home = || folder("HOME").map(|home| home.join(".config"));
    folder("XDG_CONFIG_HOME").or_else(of_home).map(|folder| folder.join(PLACE))
}

/// A file, if there is one that may be read.
fn read(path: &Path) -> anyhow::Result<Option<String>> {
    let refused = || format!("failed to read the configuration `{}`", path.display());
    // A pipe would never end, and to open some devices does something.
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        // Root keeps the rights of a user who called sudo out of root's folder, and the other way round.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tell!("{}: {error}; going on without it", refused());
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(refused),
    };
    if let Some(reason) = distrust(&file, rustix::process::geteuid().as_raw()).with_context(refused)? {
        tell!("the configuration `{}` is ignored: {reason}", path.display());
        return Ok(None);
    }
    let mut text = String::new();
    let length = file.take(LARGEST + 1).read_to_string(&mut text).with_context(refused)?;
    if length as u64 > LARGEST {
        bail!("{}: it is larger than {} MB", refused(), LARGEST >> 20);
    }
    Ok(Some(text))
}

/// Why a file is not to be believed, if it is not.
fn distrust(file: &File, user: u32) -> std::io::Result<Option<String>> {
    let metadata = file.metadata()?;
    Ok(if !metadata.is_file() {
        Some("it is no regular file".to_owned())
    } else if metadata.uid() != user && metadata.uid() != 0 {
        Some(format!("it belongs to user {}, and rtrace runs as user {user}", metadata.uid()))
    } else if metadata.mode() & 0o022 != 0 {
        Some("others may write it; chmod go-w makes it yours alone".to_owned())
    } else {
        None
    })
}

/// Reads and checks all of a file.
fn parse(path: &Path, text: &str, command: &Command) -> anyhow::Result<Vec<Default>> {
    let at = |offset: usize| {
        let line = text.get(..offset).unwrap_or(text).matches('\n').count() + 1;
        format!("{}:{line}", path.display())
    };
    let tables = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        anyhow!("failed to read the configuration: {}: {}", at(offset), error.message())
    })?;
    let mut defaults = Vec::new();
    for (verb, table) in tables.get_ref() {
        let wrong = |offset, what: String| anyhow!("failed to read the configuration: {}: {what}", at(offset));
        let start = verb.span().start;
        let Some(known) = command
            .find_subcommand(verb.get_ref().as_ref())
            .filter(|known| known.get_name() == verb.get_ref().as_ref())
        else {
            return Err(wrong(start, format!("rtrace has no verb `{}`", verb.get_ref())));
        };
        let DeValue::Table(options) = table.get_ref() else {
            let what = format!("`{}` is a verb: options follow below [{}]", verb.get_ref(), verb.get_ref());
            return Err(wrong(start, what));
        };
        for (option, value) in options {
            let words = words_of(option.get_ref(), value).map_err(|(offset, what)| wrong(offset, what))?;
            for (offset, word) in words {
                check(known, option.get_ref(), &word).map_err(|what| wrong(offset, what)).hint(format!(
                    "rtrace {} --help lists the options; rtrace --no-config … goes without the file",
                    known.get_name()
                ))?;
                let (verb, option) = (known.get_name().to_owned(), option.get_ref().to_string());
                defaults.push(Default { verb, option, word });
            }
        }
    }
    Ok(defaults)
}

/// An option as it would be typed, with its place: once for each value of a list, not at all where it is `false`.
fn words_of(option: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<(usize, String)>, (usize, String)> {
    let start = value.span().start;
    let of_text = |text: &str| vec![(start, format!("--{option}={text}"))];
    Ok(match value.get_ref() {
        DeValue::Boolean(true) => vec![(start, format!("--{option}"))],
        DeValue::Boolean(false) => Vec::new(),
        DeValue::String(text) => of_text(text),
        DeValue::Integer(number) => of_text(&number.to_string()),
        DeValue::Float(number) => of_text(&number.to_string()),
        DeValue::Array(values) => {
            let words: Result<Vec<_>, _> = values.iter().map(|value| words_of(option, value)).collect();
            words?.concat()
        }
        _ => return Err((start, format!("`{option}` takes a text, a number, true, false, or a list of these"))),
    })
}

/// Whether a verb takes an option like this.
fn check(verb: &Command, option: &str, word: &str) -> Result<(), String> {
    if find(verb, option).is_none() || ["help", "version", "no-config"].contains(&option) {
        let same = verb.get_arguments().filter_map(Arg::get_long).find(|long| *long == option.replace('_', "-"));
        let hint = same.map(|long| format!("; it is spelled `{long}`")).unwrap_or_default();
        return Err(format!("`{}` has no option `{option}`{hint}", verb.get_name()));
    }
    let Err(error) = verb.clone().no_binary_name(true).try_get_matches_from([word]) else { return Ok(()) };
    match error.kind() {
        // What it needs beside may stand on the command line, or next to it in the file.
        Wrong::MissingRequiredArgument | Wrong::DisplayHelpOnMissingArgumentOrSubcommand => Ok(()),
        _ => {
            let said = error.to_string();
            let first = said.lines().next().unwrap_or_default();
            Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn words_of_file(text: &str) -> anyhow::Result<Vec<String>> {
        let mut command = args::command();
        command.build();
        Ok(parse(Path::new("/c.toml"), text, &command)?.into_iter().map(|default| default.word).collect())
    }

    #[test]
    fn options_are_as_they_would_be_typed() {
        let text = "[attach]\nbudget = \"5%\"\nno-tui = true\nfollow = false\nlib = ['libz.so', \"a b\"]\n[report]\nlimit = 7\n";
        let mut words = words_of_file(text).unwrap();
        words.sort();
        assert_eq!(words, ["--budget=5%", "--lib=a b", "--lib=libz.so", "--limit=7", "--no-tui"]);
        assert!(words_of_file("").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, said) in [
            ("\n[atach]\n", "/c.toml:2: rtrace has no verb `atach`"),
            ("attach = 1", "/c.toml:1: `attach` is a verb"),
            ("[attach]\n\nbugdet = '5%'\n", "/c.toml:3: `attach` has no option `bugdet`"),
            ("[attach]\nno_tui = true\n", "/c.toml:2: `attach` has no option `no_tui`; it is spelled `no-tui`"),
            ("[attach]\nduration = 'soon'\n", "/c.toml:2: invalid value 'soon' for '--duration <TIME>'"),
            ("[attach]\nlib = [\n 'a',\n {},\n]\n", "/c.toml:4: `lib` takes a text"),
            ("[attach]\nno-tui = 'yes'\n", "/c.toml:2: unexpected value 'yes'"),
            ("[attach]\nbudget = true\n", "/c.toml:2: a value is required"),
            ("[attach]\nno-config = true\n", "/c.toml:2: `attach` has no option `no-config`"),
            ("[attach\n", "/c.toml:1: "),
        ] {
            let error = words_of_file(text).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{text}: {error:#}");
        }
    }

    #[test]
    fn the_command_line_decides() {
        let mut command = args::command();
        command.build();
        let is_decided = |line: &str, option: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let given = command.clone().ignore_errors(true).try_get_matches_from(words).unwrap();
            let (verb, given) = given.subcommand().unwrap();
            is_decided(command.find_subcommand(verb).unwrap(), option, given)
        };
        assert!(is_decided("rtrace attach x --budget 9%", "budget"));
        assert!(!is_decided("rtrace attach x", "budget"));
        assert!(is_decided("rtrace attach x --min-duration 1s", "mode"), "they conflict");
        assert!(is_decided("rtrace attach x --mode profile", "min-duration"), "they conflict");
        assert!(!is_decided("rtrace run -- x --budget 9%", "budget"), "that is the command's");
        assert!(!is_decided("rtrace attach x --follow", "no-follow"), "the last word counts");
    }

    #[test]
    fn the_verb_is_found_behind_options() {
        let command = args::command();
        let verb = |line: &str| verb(&line.split(' ').map(OsString::from).collect::<Vec<_>>(), &command);
        assert_eq!(verb("rtrace -v attach x"), Some((3, "attach".to_owned())));
        for none in ["rtrace", "rtrace --help", "rtrace nonsense"] {
            assert_eq!(verb(none), None, "{none}");
        }
    }

    #[test]
    fn it_is_where_the_environment_says() {
        let of = |variables: &'static [(&str, &str)]| {
            of_user(|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).into()))
        };
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.config/rtrace/config.toml".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), Some("/x/rtrace/config.toml".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")]), of(&[("HOME", "/h")]), "it must be absolute");
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_file_that_others_could_have_written_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let reason = |user| distrust(&File::open(&path).unwrap(), user).unwrap();
        set(0o644);
        assert_eq!(reason(user), None);
        set(0o664);
        assert!(reason(user).is_some_and(|reason| reason.contains("chmod go-w")));
        set(0o600);
        assert!(user == 0 || reason(user + 1).is_some_and(|reason| reason.contains("belongs to user")));
        assert!(distrust(&File::open(folder.path()).unwrap(), user).unwrap().is_some());
    }
}
