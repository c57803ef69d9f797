//! Writes the audit library: a shared object of the code in [`audit`], its state, and the stubs.
//!
//! Addresses in the file and in memory are the same. From the front: headers and the symbols that the
//! dynamic linker asks for; the code of [`audit`]; its state, which the process writes to; the stubs,
//! with the unwind table for them. The linker finds the table whatever namespace it is in, so a
//! profiler's signal that arrives in a stub sees the callers as it would in the function.

use std::os::fd::RawFd;

use object::elf::{self, DynamicTag, ProgramType};
use rtrace_bpf::wire::vector_slot;
use rtrace_code::stub::Stub;

use super::audit;

const PAGE: u64 = 4096;
/// Where the code of [`audit`] begins: the headers fill the page before.
const CODE: u64 = PAGE;
const STATE: u64 = CODE + audit::STATE;
const STUB_ALIGNMENT: u64 = 16;

const NOP: u8 = 0x90;
/// What no control comes to: a breakpoint.
const FILLING: u8 = 0xcc;
/// A jump through a word at a distance of 32 bits from its end, to code without a landing pad.
const NOTRACK_JUMP: [u8; 3] = [0x3e, 0xff, 0x25];

const READ: u32 = elf::PF_R.0;
const WRITE: u32 = elf::PF_W.0;
const EXECUTE: u32 = elf::PF_X.0;

/// The stubs for one library.
pub struct StubLibrary<'a> {
    /// Device number of its file.
    pub device: u64,
    /// Inode number of its file.
    pub inode: u64,
    /// Its stubs.
    pub stubs: Vec<&'a Stub>,
}

/// What the library needs to know besides.
pub struct AuditState {
    /// Length of `LD_AUDIT=` and the user's own value, 0 where there is none.
    pub own: u64,
    /// The descriptor by which the linker finds the library.
    pub descriptor: RawFd,
}

/// An audit library.
pub struct AuditLibrary {
    /// The file.
    pub bytes: Vec<u8>,
    /// Offsets of the sites of the stubs in it, in the order in which these were given.
    pub sites: Vec<Vec<u64>>,
}

/// Makes the audit library for these libraries.
pub fn write(libraries: &[StubLibrary], &AuditState { own, descriptor }: &AuditState) -> AuditLibrary {
    let count: usize = libraries.iter().map(|library| library.stubs.len()).sum();
    let functions = audit::HEADER.size + audit::LIBRARY_SIZE * libraries.len() as u64;
    let dynamic = STATE + functions + audit::FUNCTION_SIZE * count as u64;
    let data_end = dynamic + DYNAMIC_SIZE;
    let stubs_begin = data_end.next_multiple_of(PAGE);

    let mut state = words(&[libraries.len() as u64, own, descriptor as u64]);
    state.resize(audit::HEADER.size as usize, 0);
    let mut table = Vec::new();
    let mut code = StubCode::new(stubs_begin);
    let mut sites = Vec::new();
    for library in libraries {
        let first = functions + table.len() as u64;
        state.extend(words(&[library.device, library.inode, 0, 0, first, library.stubs.len() as u64]));
        let mut order: Vec<usize> = (0..library.stubs.len()).collect();
        order.sort_by_key(|&index| library.stubs[index].address);
        let mut placed = vec![0; order.len()];
        for index in order {
            let stub = library.stubs[index];
            let goes_on = STATE + functions + table.len() as u64 + audit::GOES_ON;
            let StubAddress { begin, site } = code.add(stub, goes_on);
            placed[index] = site;
            table.extend(words(&[stub.address, begin - STATE, stub.code.len() as u64, 0]));
        }
        sites.push(placed);
    }
    let (stubs, unwind) = code.finish();
    let file_end = stubs_begin + stubs.len() as u64;

    let symbols = Symbols::new();
    let segments = [
        (elf::PT_LOAD, READ, 0, symbols.end(), PAGE),
        (elf::PT_LOAD, READ | EXECUTE, CODE, CODE + audit::code().len() as u64, PAGE),
        (elf::PT_LOAD, READ | WRITE, STATE, data_end, PAGE),
        (elf::PT_LOAD, READ | EXECUTE, stubs_begin, file_end, PAGE),
        (elf::PT_DYNAMIC, READ | WRITE, dynamic, data_end, 8),
        (elf::PT_GNU_EH_FRAME, READ, unwind, file_end, 4),
        (elf::PT_GNU_STACK, READ | WRITE, 0, 0, 16),
        (elf::PT_GNU_PROPERTY, READ, PROPERTY, SYMBOLS, 8),
    ];
    let mut file = ElfImage(Vec::new());
    file.put(0, &header(segments.len() as u16));
    let segments: Vec<u8> = segments.into_iter().flat_map(segment).collect();
    file.put(HEADER_SIZE, &segments);
    file.put(PROPERTY, &property());
    file.put(SYMBOLS, &symbols.bytes());
    file.put(CODE, audit::code());
    file.put(STATE, &state);
    file.put(STATE + functions, &table);
    file.put(dynamic, &symbols.dynamic());
    file.put(stubs_begin, &stubs);
    AuditLibrary { bytes: file.0, sites }
}

/// Bytes that are put at places, with zeros between.
struct ElfImage(Vec<u8>);

impl ElfImage {
    fn put(&mut self, place: u64, bytes: &[u8]) {
        debug_assert!(self.0.len() as u64 <= place, "parts of the file overlap");
        self.0.resize(place as usize, 0);
        self.0.extend(bytes);
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Size of the ELF header, behind which the program headers are.
const HEADER_SIZE: u64 = 64;

fn header(segments: u16) -> Vec<u8> {
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header.extend([elf::ET_DYN.0, elf::EM_X86_64.0].iter().flat_map(|field| field.to_le_bytes()));
    header.extend(1_u32.to_le_bytes());
    header.extend(words(&[0, HEADER_SIZE, 0]));
    header.extend(0_u32.to_le_bytes());
    header.extend([64, 56, segments, 64, 0, 0].iter().flat_map(|field: &u16| field.to_le_bytes()));
    header
}

fn segment((kind, flags, begin, end, alignment): (ProgramType, u32, u64, u64, u64)) -> Vec<u8> {
    let mut segment = kind.0.to_le_bytes().to_vec();
    segment.extend(flags.to_le_bytes());
    segment.extend(words(&[begin, begin, begin, end - begin, end - begin, alignment]));
    segment
}

/// Where the property of the file is: behind as many program headers as there is room for.
const PROPERTY: u64 = SYMBOLS - 32;

/// The note that says that nothing here minds shadow stacks, so that the linker does not refuse it
/// where they are on.
fn property() -> Vec<u8> {
    let name = u32::from_le_bytes(*b"GNU\0");
    let (kind, feature) = (elf::NT_GNU_PROPERTY_TYPE_0.0, elf::GNU_PROPERTY_X86_FEATURE_1_AND.0);
    let note: [u32; 8] = [4, 16, kind, name, feature, 4, elf::GNU_PROPERTY_X86_FEATURE_1_SHSTK, 0];
    note.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Where the symbols are.
const SYMBOLS: u64 = 1024;
const SYMBOL_SIZE: u64 = 24;
const DYNAMIC_SIZE: u64 = 7 * 16;

/// What the dynamic linker finds by name: symbol table, its hash table with a single chain, names.
struct Symbols {
    table: Vec<u8>,
    hash: Vec<u8>,
    names: Vec<u8>,
}

impl Symbols {
    fn new() -> Symbols {
        let functions = audit::functions();
        let mut names = vec![0];
        let mut table = vec![0; SYMBOL_SIZE as usize];
        for (name, place) in functions {
            table.extend((names.len() as u32).to_le_bytes());
            // A global function of the default visibility, in some section.
            table.extend([0x12, 0, 1, 0]);
            table.extend(words(&[CODE + place, 0]));
            names.extend(name.bytes().chain([0]));
        }
        let count = functions.len() as u32 + 1;
        let chain = (1..count).map(|index| (index + 1) % count);
        let hash = [1, count, 1, 0].into_iter().chain(chain).flat_map(u32::to_le_bytes).collect();
        Symbols { table, hash, names }
    }

    fn hash(&self) -> u64 {
        SYMBOLS + self.table.len() as u64
    }

    fn names(&self) -> u64 {
        self.hash() + self.hash.len() as u64
    }

    fn end(&self) -> u64 {
        self.names() + self.names.len() as u64
    }

    fn bytes(&self) -> Vec<u8> {
        [self.table.as_slice(), &self.hash, &self.names].concat()
    }

    fn dynamic(&self) -> Vec<u8> {
        let entries = [
            (elf::DT_HASH, self.hash()),
            (elf::DT_STRTAB, self.names()),
            (elf::DT_SYMTAB, SYMBOLS),
            (elf::DT_STRSZ, self.names.len() as u64),
            (elf::DT_SYMENT, SYMBOL_SIZE),
            (elf::DT_INIT, CODE),
            (elf::DT_NULL, 0),
        ];
        entries.into_iter().flat_map(|(tag, value): (DynamicTag, _)| words(&[tag.0 as u64, value])).collect()
    }
}

/// Where a stub is.
struct StubAddress {
    /// Its first instruction, to which calls are bound.
    begin: u64,
    /// The instruction with the probe.
    site: u64,
}

/// The instruction that stores the low half of a vector register where [`vector_slot`] says: `movsd %xmmN,slot(%rsp)`.
fn store(number: u8) -> [u8; 6] {
    [0xf2, 0x0f, 0x11, 0x44 | number << 3, 0x24, vector_slot(number) as u8]
}

/// The stubs, and by what program the unwinder follows the stack pointer through them ("DWARF
/// Debugging Information Format", 6.4; the header is of the Linux Standard Base).
struct StubCode {
    begin: u64,
    code: Vec<u8>,
    unwind: Vec<u8>,
    /// How far the unwind program has come, in bytes of code.
    told: u64,
}

/// Bytes of the return address, from which depths count.
const SLOT: u32 = 8;
const DW_CFA_ADVANCE_LOC4: u8 = 0x04;
const DW_CFA_DEF_CFA: u8 = 0x0c;
const DW_CFA_DEF_CFA_OFFSET: u8 = 0x0e;
const DW_CFA_OFFSET: u8 = 0x80;
/// Numbers of registers: the stack pointer, and the return address.
const RSP: u8 = 7;
const RETURN_ADDRESS: u8 = 16;
/// Signed 32 bits from where they stand.
const PC_RELATIVE: u8 = 0x1b;
/// Signed 32 bits from where the header stands.
const HEADER_RELATIVE: u8 = 0x3b;
const UNSIGNED: u8 = 0x03;

impl StubCode {
    fn new(begin: u64) -> StubCode {
        StubCode { begin, code: Vec::new(), unwind: Vec::new(), told: 0 }
    }

    /// Adds a stub that goes on at the address in the word at `goes_on`; returns where it is.
    fn add(&mut self, stub: &Stub, goes_on: u64) -> StubAddress {
        let begin = self.code.len() as u64;
        self.code.extend(stub.vectors.iter().flat_map(|&number| store(number)));
        let start = self.code.len() as u64;
        self.code.push(NOP);
        self.code.extend(&stub.code);
        if !stub.returns {
            self.code.extend(NOTRACK_JUMP);
            let after = self.begin + self.code.len() as u64 + 4;
            self.code.extend(distance(after, goes_on));
        }
        self.code.resize(self.code.len().next_multiple_of(STUB_ALIGNMENT as usize), FILLING);
        for &(behind, depth) in &stub.depths {
            self.tell(start + 1 + u64::from(behind), depth);
        }
        if stub.depths.last().is_some_and(|&(_, depth)| depth != 0) {
            self.tell(self.code.len() as u64, 0);
        }
        StubAddress { begin: self.begin + begin, site: self.begin + start }
    }

    /// From this place on, the stack pointer is so far from the return address.
    fn tell(&mut self, place: u64, depth: u32) {
        self.unwind.push(DW_CFA_ADVANCE_LOC4);
        self.unwind.extend(((place - self.told) as u32).to_le_bytes());
        self.unwind.push(DW_CFA_DEF_CFA_OFFSET);
        self.unwind.extend(uleb128(depth + SLOT));
        self.told = place;
    }

    /// Code with its unwind table, and where the header of that is.
    fn finish(self) -> (Vec<u8>, u64) {
        let StubCode { begin, mut code, unwind, .. } = self;
        let (length, header) = (code.len() as u32, begin + code.len() as u64);
        let common_place = header + 20;
        let common = entry(&[
            &0_u32.to_le_bytes()[..],
            &[1, b'z', b'R', 0, 1, 0x78, RETURN_ADDRESS, 1, PC_RELATIVE],
            &[DW_CFA_DEF_CFA, RSP, SLOT as u8, DW_CFA_OFFSET | RETURN_ADDRESS, 1],
        ]);
        let place = common_place + common.len() as u64;
        let back = (place + 4 - common_place) as u32;
        let stubs = entry(&[&back.to_le_bytes(), &distance(place + 8, begin), &length.to_le_bytes(), &[0], &unwind]);
        code.extend([1, PC_RELATIVE, UNSIGNED, HEADER_RELATIVE]);
        code.extend(distance(header + 4, common_place));
        code.extend(1_u32.to_le_bytes());
        code.extend(distance(header, begin));
        code.extend(distance(header, place));
        code.extend(common);
        code.extend(stubs);
        code.extend(0_u32.to_le_bytes());
        (code, header)
    }
}

/// An entry of the unwind table: its length, its parts, and filling.
fn entry(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = parts.concat();
    body.resize(body.len().next_multiple_of(8) + 4, 0);
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

fn distance(from: u64, to: u64) -> [u8; 4] {
    (to.wrapping_sub(from) as u32).to_le_bytes()
}

fn uleb128(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        bytes.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn stub(address: u64, code: &[u8], returns: bool) -> Stub {
        Stub { address, code: code.to_vec(), returns, ..Stub::default() }
    }

    #[test]
    fn stubs_go_on_at_words_of_a_sorted_table() {
        let stubs = [stub(0x2000, &[0x89, 0xf2], false), stub(0x1000, &[0x90, 0xc3], true)];
        let library = StubLibrary { device: 5, inode: 6, stubs: stubs.iter().collect() };
        let AuditLibrary { bytes, sites } = write(&[library], &AuditState { own: 0, descriptor: 9 });
        let word = |place: u64| u64::from_le_bytes(bytes[place as usize..][..8].try_into().unwrap());
        let table = STATE + audit::HEADER.size + audit::LIBRARY_SIZE;
        let entries = [0, 1].map(|index| table + index * audit::FUNCTION_SIZE);
        assert_eq!(entries.map(word), [0x1000, 0x2000]);
        for (entry, (stub, &offset)) in entries.iter().rev().zip(stubs.iter().zip(&sites[0])) {
            assert_eq!((word(entry + 8) + STATE, word(entry + 16)), (offset, stub.code.len() as u64));
            assert_eq!(bytes[offset as usize], NOP);
            assert_eq!(bytes[offset as usize + 1..][..stub.code.len()], stub.code);
        }
        let jump = sites[0][0] as usize + 3;
        assert_eq!(bytes[jump..][..3], NOTRACK_JUMP);
        let away = i32::from_le_bytes(bytes[jump + 3..][..4].try_into().unwrap());
        assert_eq!((jump as u64 + 7).wrapping_add_signed(away.into()), entries[1] + audit::GOES_ON);
        assert_eq!(bytes[sites[0][1] as usize + 3], FILLING);
    }

    #[test]
    fn vector_registers_are_stored_before_the_site() {
        let stubs = [Stub { vectors: vec![0, 7], ..stub(0x1000, &[0x90], false) }];
        let library = StubLibrary { device: 5, inode: 6, stubs: stubs.iter().collect() };
        let AuditLibrary { bytes, sites } = write(&[library], &AuditState { own: 0, descriptor: 9 });
        // movsd %xmm0,-40(%rsp); movsd %xmm7,-96(%rsp); nop
        let stored = [0xf2, 0x0f, 0x11, 0x44, 0x24, 0xd8, 0xf2, 0x0f, 0x11, 0x7c, 0x24, 0xa0, NOP];
        let begin = sites[0][0] as usize - 12;
        assert_eq!(bytes[begin..][..stored.len()], stored);
        let table = (STATE + audit::HEADER.size + audit::LIBRARY_SIZE + 8) as usize;
        assert_eq!(u64::from_le_bytes(bytes[table..][..8].try_into().unwrap()) + STATE, begin as u64);
    }

    #[test]
    fn numbers_are_those_of_dwarf() {
        assert_eq!(uleb128(2), [2]);
        assert_eq!(uleb128(127), [127]);
        assert_eq!(uleb128(128), [0x80, 1]);
        assert_eq!(uleb128(12_857), [0xb9, 0x64]);
    }
}
