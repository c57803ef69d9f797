//! `trace.json`: what is said of the recording as a whole.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rtrace_model::{Header, Summary, counted, grouped};
use serde::{Deserialize, Serialize};

use crate::directory::{Directory, MANIFEST, open_file};
use crate::{Error, VERSION};

/// Whether the recorder said that it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoredStatus {
    /// It still runs, or was killed.
    Recording,
    Finished,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    schema: u64,
    pub(crate) status: StoredStatus,
    pub(crate) header: Header,
    /// Present once finished.
    pub(crate) summary: Option<Summary>,
    /// Present where the recorder could not write on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
}

/// Why a recording stopped, and what of it is missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What the system said.
    pub(crate) error: String,
    /// Nanoseconds from the beginning of the recording until it stopped.
    pub(crate) after_ns: u64,
    /// Of these, the last ones of which nothing was written any more.
    pub(crate) missing_ns: u64,
    /// Calls that were recorded.
    pub(crate) calls: u64,
    /// Of these, calls that were written.
    pub(crate) written: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { error, after_ns, missing_ns, calls, written } = self;
        let missing = calls.saturating_sub(*written);
        let share = 100.0 * missing as f64 / (*calls).max(1) as f64;
        let seconds = |time: u64| time as f64 / 1e9;
        write!(f, "the recording stopped after {:.1} s: {error}. ", seconds(*after_ns))?;
        write!(
            f,
            "{} of {} recorded until then are missing ({share:.1} %), ",
            grouped(missing),
            counted(*calls, "call")
        )?;
        write!(f, "those of the last {:.1} s, and all later ones", seconds(*missing_ns))
    }
}

/// What every version of the file holds.
#[derive(Deserialize)]
struct Versioned {
    schema: u64,
}

impl Manifest {
    pub(crate) fn recording(header: Header) -> Manifest {
        Manifest { schema: VERSION, status: StoredStatus::Recording, header, summary: None, failure: None }
    }

    pub(crate) fn finish(&mut self, summary: Summary) {
        self.status = StoredStatus::Finished;
        self.summary = Some(summary);
    }

    pub(crate) fn write(&self, directory: &Directory) -> Result<(), Error> {
        let mut text = serde_json::to_vec_pretty(self).expect("strings, numbers and lists always serialize");
        text.push(b'\n');
        directory.write(MANIFEST, &text)
    }

    pub(crate) fn read(directory: &Path) -> Result<Manifest, Error> {
        let path = directory.join(MANIFEST);
        let read = |mut file: File| {
            let mut text = Vec::new();
            file.read_to_end(&mut text).map(|_| text)
        };
        let text = open_file(&path).and_then(read).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if directory.is_dir() => Error::NotATrace { path: directory.to_owned() },
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::io("open", directory)(error),
            _ => Error::io("read", &path)(error),
        })?;
        let malformed = |source| Error::Manifest { path: path.clone(), source };
        let Versioned { schema } = serde_json::from_slice(&text).map_err(malformed)?;
        if schema != VERSION {
            return Err(Error::Version { path: directory.to_owned(), found: schema });
        }
        serde_json::from_slice(&text).map_err(malformed)
    }
}
