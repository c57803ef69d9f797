//! Python's interpreter in a process: where it has its frames, and what its code objects are called.
//!
//! From CPython 3.13 on, the interpreter has a table of offsets for readers outside of the process. For 3.11 and 3.12 the
//! offsets are here; they do not change within a version. Nothing is known of other versions, of interpreters without a
//! global lock and of other implementations: frames of these stay functions of C.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rtrace_bpf::PythonFrame;
use rtrace_bpf::wire::{NOT_THERE, PythonRecord};
use rtrace_model::SourceLine;
use rtrace_symbolizer::Image;
use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules::Module;

/// What the interpreter's table begins with.
const COOKIE: &[u8] = b"xdebugpy";

/// Longest name, and most bytes of a table of lines, that are believed.
const LONGEST_NAME: u64 = 1 << 12;
const LONGEST_TABLE: u64 = 1 << 24;

/// Offsets in a string, in bytes: those of its length and hash do not differ by version, and are those of an array of bytes,
/// too.
const LENGTH: u64 = 16;
const HASH: u16 = 24;
const STATE: u64 = 32;

/// Bytes of the version of a code object in front of its names, as `CODE_VERSION` in `python.bpf.h`.
const VERSION: u64 = 20;

/// Offsets in an array of bytes.
const BYTES: u64 = 32;

/// Where an interpreter has what.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// What the kernel side needs; `interpreters` is an offset in the interpreter's global state.
    frames: PythonRecord,
    /// In a code object: file, name, qualified name and table of lines.
    names: [u64; 4],
    /// Bytes in front of the characters of a string, where all are below 128 and else.
    characters: [u64; 2],
}

fn layout_311() -> Layout {
    let frames = PythonRecord {
        interpreters: 40,
        next_interpreter: 0,
        threads: 16,
        next_thread: 8,
        thread_id: 160,
        current: 56,
        c_frame: 8,
        c_previous: 16,
        code: 32,
        instruction: 56,
        previous: 48,
        owner: 69,
        is_entry: 68,
        names: 112,
        line: 72,
        bytecode: 184,
        hash: HASH,
    };
    Layout { frames, names: [112, 120, 128, 136], characters: [48, 72] }
}

fn layout_312() -> Layout {
    let frames = PythonRecord {
        threads: 72,
        thread_id: 144,
        c_frame: 0,
        c_previous: 8,
        code: 0,
        previous: 8,
        owner: 70,
        is_entry: NOT_THERE,
        line: 68,
        bytecode: 192,
        hash: NOT_THERE,
        ..layout_311().frames
    };
    Layout { frames, characters: [40, 56], ..layout_311() }
}

/// The offsets that the interpreter's table says. Its parts have become longer from version to version.
fn layout_by_table(minor: u64, table: &[u64]) -> Option<Layout> {
    // Numbers of the words with which the parts on threads, frames and code objects begin.
    let [thread, frame, code] = match minor {
        13 => [19, 28, 34],
        14 => [22, 31, 39],
        _ => return None,
    };
    let is_free_threaded = *table.get(2)? != 0;
    let at = |word: usize| table.get(word).copied();
    let offset = |word: usize| at(word).and_then(|offset| u16::try_from(offset).ok());
    let names = [at(code + 1)?, at(code + 2)?, at(code + 3)?, at(code + 4)?];
    let frames = PythonRecord {
        interpreters: at(5)?,
        next_interpreter: offset(8)?,
        threads: offset(9)?,
        next_thread: offset(thread + 2)?,
        thread_id: offset(thread + 6)?,
        current: offset(thread + 4)?,
        c_frame: NOT_THERE,
        c_previous: NOT_THERE,
        code: offset(frame + 2)?,
        instruction: offset(frame + 3)?,
        previous: offset(frame + 1)?,
        owner: offset(frame + 5)?,
        is_entry: NOT_THERE,
        names: offset(code + 1)?,
        line: offset(code + 5)?,
        bytecode: offset(code + 9)?,
        hash: NOT_THERE,
    };
    let is_known = !is_free_threaded && (0..4).all(|nth| names[nth] == names[0] + 8 * nth as u64);
    is_known.then_some(Layout { frames, names, characters: [40, 56] })
}

/// File and function of a code object that was freed, or whose process ended, before it was read.
const UNKNOWN: &str = "(unknown code)";

/// Bytes of a process.
struct InterpreterMemory(File);

impl InterpreterMemory {
    fn bytes(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.0.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    fn words(&self, address: u64, count: u64) -> Option<Vec<u64>> {
        let bytes = self.bytes(address, count * 8)?;
        Some(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect())
    }

    fn word(&self, address: u64) -> Option<u64> {
        Some(self.words(address, 1)?[0])
    }
}

/// What is known of a code object.
struct CodeObject {
    file: String,
    function: String,
    first_line: u32,
    /// The lines of the instructions, as the interpreter has packed them.
    lines: Vec<u8>,
}

/// A place in a Python function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PythonLine {
    /// The function, with the classes and functions that it is in.
    pub function: String,
    /// The line that runs or calls.
    pub source: SourceLine,
}

/// The files that were looked at, with what those are that have an interpreter.
pub type Interpreters = HashMap<FileId, Option<InterpreterFile>>;

/// A file with an interpreter.
pub struct InterpreterFile {
    image: Image,
    /// Addresses of its global state and of its version.
    variables: [u64; 2],
}

impl InterpreterFile {
    fn of(module: &Module) -> Option<InterpreterFile> {
        let image = Image::open_outline(&module.open_path()).ok()?;
        let address = |name| image.definitions().find(|known| known.name == name).map(|known| known.address);
        let variables = [address("_PyRuntime")?, address("Py_Version")?];
        Some(InterpreterFile { image, variables })
    }
}

/// The interpreter of a process.
pub struct Python {
    memory: InterpreterMemory,
    layout: Layout,
    /// By address and identity; none for what could not be read.
    objects: HashMap<(u64, u32), Option<CodeObject>>,
    lines: HashMap<PythonFrame, Option<Arc<PythonLine>>>,
}

impl Python {
    /// That of a process with these files, if it has one that is understood.
    pub fn of(pid: u32, modules: &[Module], interpreters: &mut Interpreters) -> Option<Python> {
        // It is the program, or a library of its name.
        let (program, libraries) = modules.split_first()?;
        let libraries = libraries.iter().filter(|module| {
            let name = module.file_name();
            name.trim_start_matches("lib").starts_with("python")
        });
        let [runtime, version] = libraries.chain([program]).find_map(|module| {
            let file = interpreters.entry((module.device, module.inode));
            let file = file.or_insert_with(|| InterpreterFile::of(module)).as_ref()?;
            let bias = module.load_bias(&file.image)?;
            Some(file.variables.map(|address| bias.wrapping_add(address)))
        })?;
        let memory = InterpreterMemory(File::open(format!("/proc/{pid}/mem")).ok()?);
        let minor = match memory.word(version)? >> 16 {
            version if version >> 8 == 3 => version & 0xff,
            _ => return None,
        };
        let mut layout = match minor {
            11 => layout_311(),
            12 => layout_312(),
            _ if memory.bytes(runtime, 8)? == COOKIE => layout_by_table(minor, &memory.words(runtime, 64)?)?,
            _ => return None,
        };
        layout.frames.interpreters += runtime;
        Some(Python { memory, layout, objects: HashMap::new(), lines: HashMap::new() })
    }

    /// What the kernel side needs to read its frames.
    pub fn record(&self) -> PythonRecord {
        self.layout.frames
    }

    /// Where a frame is; in [unknown code](UNKNOWN) if its code object or process is not there any more.
    pub fn line(&mut self, frame: PythonFrame) -> Arc<PythonLine> {
        let Python { memory, layout, objects, lines } = self;
        let line = lines.entry(frame).or_insert_with(|| {
            let of = objects.entry((frame.code, frame.identity));
            let object = of.or_insert_with(|| layout.read(memory, frame.code, frame.identity)).as_ref()?;
            let line = line_at(&object.lines, object.first_line, frame.offset);
            let source = SourceLine { file: object.file.clone(), line: line.unwrap_or_default() };
            Some(Arc::new(PythonLine { function: object.function.clone(), source }))
        });
        line.get_or_insert_with(|| {
            let source = SourceLine { file: UNKNOWN.to_owned(), line: 0 };
            Arc::new(PythonLine { function: UNKNOWN.to_owned(), source })
        })
        .clone()
    }
}

impl Layout {
    fn read(&self, memory: &InterpreterMemory, code: u64, identity: u32) -> Option<CodeObject> {
        let (names, first_line) = self.identified(memory, code, identity)?;
        let [file, _, qualified, lines] = names;
        let length = memory.word(lines + LENGTH).filter(|length| *length <= LONGEST_TABLE)?;
        let object = CodeObject {
            file: self.text(memory, file)?,
            function: self.text(memory, qualified)?,
            first_line,
            lines: memory.bytes(lines + BYTES, length)?,
        };
        // It may have been freed meanwhile.
        self.identified(memory, code, identity).map(|_| object)
    }

    /// The names and the first line of a code object, if it is that one.
    fn identified(&self, memory: &InterpreterMemory, code: u64, identity: u32) -> Option<([u64; 4], u32)> {
        let mut names = [0; 4];
        for (name, offset) in names.iter_mut().zip(self.names) {
            *name = memory.word(code + offset)?;
        }
        let first_line = memory.word(code + u64::from(self.frames.line))? as u32;
        let is_it = if self.frames.hash == NOT_THERE {
            let version = memory.word(code + self.names[0] - VERSION)? << 32;
            identity_of(version | u64::from(first_line), names) == identity
        } else {
            let mut hashes = [0; 4];
            for (hash, text) in hashes.iter_mut().zip(names) {
                *hash = memory.word(text + u64::from(HASH))?;
            }
            // The kernel side takes 0 for each hash that was not in memory.
            (0..1 << hashes.len()).any(|mask| {
                let read = (0..hashes.len()).map(|nth| if mask >> nth & 1 == 0 { hashes[nth] } else { 0 });
                identity_of(first_line.into(), names.into_iter().zip(read).flat_map(<[u64; 2]>::from)) == identity
            })
        };
        is_it.then_some((names, first_line))
    }

    fn text(&self, memory: &InterpreterMemory, string: u64) -> Option<String> {
        let length = memory.word(string + LENGTH).filter(|length| *length <= LONGEST_NAME)?;
        let state = memory.word(string + STATE)? as u32;
        // In front of the kind are the bits on how the string is shared: two, or 16.
        let bits = [2, 16].map(|before| state >> before).into_iter().find(|bits| matches!(bits & 7, 1 | 2 | 4))?;
        let (kind, is_ascii) = (u64::from(bits & 7), bits >> 4 & 1 == 1);
        let characters = memory.bytes(string + self.characters[usize::from(!is_ascii)], length * kind)?;
        let code_point = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let character = |bytes| char::from_u32(code_point(bytes)).unwrap_or(char::REPLACEMENT_CHARACTER);
        Some(characters.chunks_exact(kind as usize).map(character).collect())
    }
}

/// As `code_identity` in `python.bpf.h`; `number`: the first line, and above it the version.
fn identity_of(number: u64, words: impl IntoIterator<Item = u64>) -> u32 {
    let mix = |mixed: u64, word: u64| (mixed ^ word).wrapping_mul(rtrace_bpf::wire::MIX_LOW);
    (words.into_iter().fold(number, mix) >> 32) as u32
}

/// The line of the instruction that is so many bytes behind the first one; `None` where it has none.
///
/// An entry of the table is a byte with its kind and how many instructions it is for, and then how far it is from the line
/// of the entry before it.
fn line_at(table: &[u8], first_line: u32, offset: u32) -> Option<u32> {
    let mut bytes = table.iter().copied();
    let (mut line, mut end) = (i64::from(first_line), 0_u32);
    while let Some(head) = bytes.next() {
        let number = |bytes: &mut dyn Iterator<Item = u8>| {
            let (mut number, mut shift) = (0_u64, 0);
            for byte in bytes {
                number |= u64::from(byte & 0x3f) << shift;
                shift += 6;
                if byte & 0x40 == 0 || shift > 48 {
                    break;
                }
            }
            number
        };
        let signed = |number: u64| if number & 1 == 1 { -((number >> 1) as i64) } else { (number >> 1) as i64 };
        let kind = head >> 3 & 0xf;
        let has_line = kind != 15;
        match kind {
            0..=9 => _ = bytes.next(),
            10..=12 => {
                line += i64::from(kind) - 10;
                bytes.by_ref().take(2).for_each(drop);
            }
            13 => line += signed(number(&mut bytes)),
            14 => {
                line += signed(number(&mut bytes));
                for _ in 0..3 {
                    number(&mut bytes);
                }
            }
            _ => {}
        }
        end += (u32::from(head & 7) + 1) * 2;
        if offset < end {
            return has_line.then(|| u32::try_from(line).ok()).flatten();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_entries_that_instructions_are_in() {
        let entry = |kind: u8, instructions: u8| 0x80 | kind << 3 | (instructions - 1);
        // The first line; two lines on, in columns; 40 lines on and one back, with numbers of two bytes; none.
        let forward = [entry(13, 8), 0x40 | (80 & 0x3f), 80 >> 6];
        let table = [&[entry(0, 1), 0, entry(12, 2), 1, 2][..], &forward, &[entry(14, 1), 3, 0, 5, 6, entry(15, 1)]];
        let table = table.concat();
        let lines: Vec<_> = (0..14).map(|instruction| line_at(&table, 7, instruction * 2)).collect();
        let mut expected = vec![Some(7), Some(9), Some(9)];
        expected.extend([Some(49); 8]);
        expected.extend([Some(48), None, None]);
        assert_eq!(lines, expected);
        assert_eq!(line_at(&[], 7, 0), None);
    }

    #[test]
    fn the_table_of_a_version_that_is_not_known_says_nothing() {
        let table: Vec<u64> = (0..64).map(|word| word * 8).collect();
        assert!(layout_by_table(15, &table).is_none());
        assert!(layout_by_table(13, &table).is_none(), "it has no global lock");
        let locked: Vec<u64> =
            table.iter().enumerate().map(|(word, &offset)| if word == 2 { 0 } else { offset }).collect();
        let of = |minor| layout_by_table(minor, &locked).map(|layout| (layout.frames.current, layout.names[0]));
        assert_eq!((of(13), of(14)), (Some((23 * 8, 35 * 8)), Some((26 * 8, 40 * 8))));
        assert!(layout_by_table(14, &locked[..40]).is_none(), "it is cut");
    }
}
