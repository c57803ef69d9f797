//! From a command as it is typed to the programs that the kernel starts for it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rtrace_model::text_of;
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
pub fn resolve_command(command: &OsStr, path_env: Option<&OsStr>) -> Result<Vec<PathBuf>, Error> {
    let mut chain = vec![find_program(command, path_env)?];
    while let Some(line) = chain.last().map(|last| interpreter_line(last)).transpose()?.flatten() {
        let mut words = line.splitn(2, |byte| b" \t".contains(byte)).map(OsStr::from_bytes);
        let interpreter = words.next().unwrap_or_default();
        chain.push(executable(PathBuf::from(interpreter)).ok_or_else(|| no_such(interpreter))?);
        if Path::new(interpreter).ends_with("env")
            && let Some(command) = words.next().and_then(env_command)
        {
            chain.push(find_program(command, path_env)?);
        }
        if chain.len() > MAX_CHAIN {
            return Err(Error::TooManyInterpreters { command: text_of(command.as_bytes()).into_owned() });
        }
    }
    Ok(chain)
}

fn find_program(command: &OsStr, path_env: Option<&OsStr>) -> Result<PathBuf, Error> {
    let found = if command.as_bytes().contains(&b'/') {
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

fn no_such(command: &OsStr) -> Error {
    Error::NoSuchCommand { command: text_of(command.as_bytes()).into_owned() }
}

/// What follows `#!` in a script's first line; `None` if the file is no script.
fn interpreter_line(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FIRST_LINE).read_to_end(&mut start))
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let line = start.strip_prefix(b"#!").and_then(|rest| rest.split(|&byte| byte == b'\n').next());
    Ok(line.map(|line| line.trim_ascii().to_vec()).filter(|line| !line.is_empty()))
}

/// The command among the words that `env` is given: options and assignments come before it.
fn env_command(argument: &OsStr) -> Option<&OsStr> {
    let words = argument.as_bytes().split(u8::is_ascii_whitespace);
    let mut words = words.map(|word| word.strip_prefix(b"-S").unwrap_or(word));
    words.find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'=')).map(OsStr::from_bytes)
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
        let resolve = |command: &str| resolve_command(command.as_ref(), Some(&path_env)).unwrap();

        let sh = PathBuf::from("/bin/sh");
        assert_eq!(resolve("/bin/sh"), [sh.as_path()]);
        let plain = script(folder.path(), "plain", "#! /bin/sh -e\necho\n");
        assert_eq!(resolve("plain"), [plain.as_path(), &sh]);
        let by_env = script(folder.path(), "by_env", "#!/usr/bin/env -S A=b plain -x\n");
        assert_eq!(resolve("by_env"), [by_env.as_path(), Path::new("/usr/bin/env"), &plain, &sh]);
    }

    #[test]
    fn names_of_any_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let interpreter = folder.path().join(OsStr::from_bytes(b"i\xff"));
        fs::copy("/bin/true", &interpreter).unwrap();
        let path = folder.path().join(OsStr::from_bytes(b"s\xe6\xbc"));
        fs::write(&path, [b"#!", interpreter.as_os_str().as_bytes(), b"\n"].concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let found = resolve_command(OsStr::from_bytes(b"s\xe6\xbc"), Some(folder.path().as_os_str())).unwrap();
        assert_eq!(found, [path, interpreter]);
        let Err(Error::NoSuchCommand { command }) = resolve_command(OsStr::from_bytes(b"/\xfe"), None) else {
            panic!()
        };
        assert_eq!(command, "/\\xfe");
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
        assert!(matches!(resolve_command("loops".as_ref(), Some(path_env)), Err(Error::TooManyInterpreters { .. })));
        for command in ["lost", "data", "folder", "absent", "", "/"] {
            assert!(
                matches!(resolve_command(command.as_ref(), Some(path_env)), Err(Error::NoSuchCommand { .. })),
                "{command}"
            );
        }
    }
}
