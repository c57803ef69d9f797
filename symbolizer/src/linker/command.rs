//! From a command as it is typed to the programs that the kernel starts for it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::Error;

/// Where `execvp` looks when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The kernel reads this much of a script, in bytes.
const MAX_FIRST_LINE: u64 = 256;
/// More than the kernel follows, for `env` adds one to each.
const MAX_CHAIN: usize = 10;

/// The files that are started to run `command`: the program, or a script, its interpreter and so
/// on; with `#!/usr/bin/env python3` both `env` and `python3`.
///
/// # Errors
/// [`Error::NoSuchCommand`], [`Error::TooManyInterpreters`] or [`Error::Read`].
pub fn resolve_command(command: &str, path_env: Option<&OsStr>) -> Result<Vec<PathBuf>, Error> {
    let mut chain = vec![find_program(command, path_env)?];
    while let Some(line) = chain.last().map(|last| interpreter_line(last)).transpose()?.flatten() {
        let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
        chain.push(executable(PathBuf::from(interpreter)).ok_or_else(|| no_such(interpreter))?);
        if Path::new(interpreter).ends_with("env")
            && let Some(command) = env_command(argument)
        {
            chain.push(find_program(command, path_env)?);
        }
        if chain.len() > MAX_CHAIN {
            return Err(Error::TooManyInterpreters { command: command.to_owned() });
        }
    }
    Ok(chain)
}

fn find_program(command: &str, path_env: Option<&OsStr>) -> Result<PathBuf, Error> {
    let found = if command.contains('/') {
        executable(PathBuf::from(command))
    } else {
        let folders = path_env.unwrap_or(OsStr::new(DEFAULT_PATH));
        // An empty command would find the folders themselves.
        std::env::split_paths(folders)
            .filter(|_| !command.is_empty())
            .find_map(|folder| executable(folder.join(command)))
    };
    found.ok_or_else(|| no_such(command))
}

fn executable(path: PathBuf) -> Option<PathBuf> {
    (path.is_file() && rustix::fs::access(&path, Access::EXEC_OK).is_ok()).then_some(path)
}

fn no_such(command: &str) -> Error {
    Error::NoSuchCommand { command: command.to_owned() }
}

/// What follows `#!` in a script's first line; `None` if the file is no script.
fn interpreter_line(path: &Path) -> Result<Option<String>, Error> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FIRST_LINE).read_to_end(&mut start))
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let line = start.strip_prefix(b"#!").and_then(|rest| rest.split(|&byte| byte == b'\n').next());
    let line = line.map(|line| String::from_utf8_lossy(line).trim().to_owned());
    Ok(line.filter(|line| !line.is_empty()))
}

/// The command among the words that `env` is given: options and assignments come before it.
fn env_command(argument: &str) -> Option<&str> {
    let words = argument.split_whitespace().map(|word| word.strip_prefix("-S").unwrap_or(word));
    words.into_iter().find(|word| !word.is_empty() && !word.starts_with('-') && !word.contains('='))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn programs_scripts_and_env() {
        let folder = tempfile::tempdir().unwrap();
        let path_env = std::env::join_paths([folder.path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
        let resolve = |command: &str| resolve_command(command, Some(&path_env)).unwrap();

        let sh = PathBuf::from("/bin/sh");
        assert_eq!(resolve("/bin/sh"), [sh.as_path()]);
        let plain = script(folder.path(), "plain", "#! /bin/sh -e\necho\n");
        assert_eq!(resolve("plain"), [plain.as_path(), &sh]);
        let by_env = script(folder.path(), "by_env", "#!/usr/bin/env -S A=b plain -x\n");
        assert_eq!(resolve("by_env"), [by_env.as_path(), Path::new("/usr/bin/env"), &plain, &sh]);
    }

    #[test]
    fn commands_that_cannot_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let path_env = folder.path().as_os_str();
        let loops = folder.path().join("loops");
        script(folder.path(), "loops", &format!("#!{}\n", loops.display()));
        script(folder.path(), "lost", "#!/not/there\n");
        fs::write(folder.path().join("data"), "").unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(matches!(resolve_command("loops", Some(path_env)), Err(Error::TooManyInterpreters { .. })));
        for command in ["lost", "data", "folder", "absent", "", "/"] {
            assert!(matches!(resolve_command(command, Some(path_env)), Err(Error::NoSuchCommand { .. })), "{command}");
        }
    }
}
