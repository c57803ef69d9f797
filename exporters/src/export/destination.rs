//! Where an export goes: a stream, or a file or directory that appears whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

use super::ExportError;
use crate::Owner;

/// Where an export goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file or directory; a pipe or device is written to as it is.
    Path {
        /// Its name.
        path: PathBuf,
        /// Whether it may take the place of an older export.
        force: bool,
        /// To whom it shall belong, where not to the one who writes it.
        owner: Option<Owner>,
    },
}

type Result<T = ()> = std::result::Result<T, ExportError>;

impl Destination {
    /// Writes one file.
    ///
    /// # Errors
    /// It exists, cannot be created or written, or `write` fails.
    pub fn file(&self, write: impl FnOnce(&mut dyn Write) -> Result) -> Result {
        match self {
            Destination::Stdout => {
                let mut output = Named { output: io::stdout().lock(), name: "standard output".into() };
                buffered(&mut output, write)
            }
            Destination::Path { path, force, owner } => match fs::metadata(path) {
                Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
                    let output = File::options().write(true).open(path).map_err(named("open", path))?;
                    buffered(&mut Named { output, name: path.display().to_string() }, write)
                }
                Ok(metadata) if metadata.is_dir() || !force => Err(ExportError::Exists { path: path.clone() }),
                _ => new_file(path, *force, *owner, write),
            },
        }
    }

    /// Fills one directory, in which a file of the name `marker` tells the format.
    pub(super) fn directory(&self, format: &'static str, marker: &str, fill: impl FnOnce(&Path) -> Result) -> Result {
        let Destination::Path { path, force, owner } = self else { return Err(ExportError::NotAStream { format }) };
        let replaced = match fs::symlink_metadata(path) {
            Ok(_) if *force && path.join(marker).is_file() => true,
            Ok(_) => return Err(ExportError::Exists { path: path.clone() }),
            Err(_) => false,
        };
        let staged = hidden().permissions(Permissions::from_mode(0o777)).tempdir_in(parent(path));
        let staged = staged.map_err(named("create", path))?;
        fill(staged.path())?;
        if let Some(owner) = owner {
            give_away(staged.path(), *owner).map_err(named("change the owner of", path))?;
        }
        // The old directory moves into a temporary one, which is removed with it.
        let old = if replaced {
            let old = hidden().tempdir_in(parent(path)).map_err(named("replace", path))?;
            fs::rename(path, old.path().join("old")).map_err(named("replace", path))?;
            Some(old)
        } else {
            None
        };
        fs::rename(staged.keep(), path).map_err(named("create", path))?;
        drop(old);
        Ok(())
    }
}

fn new_file(path: &Path, force: bool, owner: Option<Owner>, write: impl FnOnce(&mut dyn Write) -> Result) -> Result {
    let staged = hidden().permissions(Permissions::from_mode(0o666)).tempfile_in(parent(path));
    let mut staged = staged.map_err(named("create", path))?;
    if let Some(Owner { uid, gid }) = owner {
        fchown(staged.as_file(), Some(uid), Some(gid)).map_err(named("change the owner of", path))?;
    }
    buffered(&mut Named { output: staged.as_file_mut(), name: path.display().to_string() }, write)?;
    let persisted = if force { staged.persist(path) } else { staged.persist_noclobber(path) };
    match persisted {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            Err(ExportError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(named("create", path)(error.error).into()),
    }
}

fn buffered(output: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> Result) -> Result {
    let mut output = BufWriter::with_capacity(1 << 18, output);
    write(&mut output)?;
    Ok(output.flush()?)
}

fn hidden() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".rtrace-export-");
    builder
}

/// The directory that a file is in; of a bare name it is the current one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn give_away(path: &Path, owner: Owner) -> io::Result<()> {
    lchown(path, Some(owner.uid), Some(owner.gid))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_away(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

pub(super) fn named(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.to_owned();
    move |error| io::Error::new(error.kind(), format!("failed to {action} `{}`: {error}", path.display()))
}

/// An output whose errors name it.
struct Named<W> {
    output: W,
    name: String,
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes).map_err(named("write", Path::new(&self.name)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush().map_err(named("write", Path::new(&self.name)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(path: &Path, force: bool) -> Destination {
        Destination::Path { path: path.to_owned(), force, owner: None }
    }

    fn names(path: &Path) -> Vec<String> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_never_overwritten_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        at(&path, false).file(|output| Ok(output.write_all(b"one")?)).unwrap();
        let error = at(&path, false).file(|_| panic!("nothing is written")).unwrap_err();
        assert!(matches!(error, ExportError::Exists { .. }), "{error}");
        at(&path, true).file(|output| Ok(output.write_all(b"two")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(at(folder.path(), true).file(|_| panic!("nothing is written")).is_err());
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_failed_export_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let fail = || Err(ExportError::NotAStream { format: "x" });
        assert!(at(&folder.path().join("a"), false).file(|_| fail()).is_err());
        assert!(at(&folder.path().join("b"), false).directory("x", "m", |_| fail()).is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn only_a_directory_of_the_format_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let fill = |content: &'static str| move |path: &Path| Ok(fs::write(path.join("m"), content)?);
        at(&path, false).directory("x", "m", fill("one")).unwrap();
        assert!(at(&path, false).directory("x", "m", fill("two")).is_err());
        assert!(at(&path, true).directory("x", "other", fill("two")).is_err());
        at(&path, true).directory("x", "m", fill("two")).unwrap();
        assert_eq!(fs::read_to_string(path.join("m")).unwrap(), "two");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_full_device_is_named() {
        let error = at(Path::new("/dev/full"), false).file(|output| Ok(output.write_all(b"one")?)).unwrap_err();
        assert_eq!(error.to_string(), "failed to write `/dev/full`: No space left on device (os error 28)");
    }
}
