//! The code of the audit library: what the dynamic linker calls when it maps objects and binds names
//! (`rtld-audit(7)`).
//!
//! It runs in the traced program, in a namespace of its own, so it is a few instructions that need
//! neither relocation nor another library, copied from rtrace itself into the file. What it is to do
//! stands in the [state](self#state) that follows it at a fixed distance:
//!
//! - `la_version` takes part from version 2 of the interface on (glibc 2.35). Before, the linker
//!   would send every call of the program through a slow path.
//! - `la_objopen` knows a traced library by device and inode, as the kernel does for probes, and
//!   remembers where it is. A second copy in another namespace is not taken: a stub leads to one.
//! - `la_objclose` forgets it.
//! - `la_symbind64` finds the function by its address, so whatever name and version led to it, tells
//!   its stub where the function goes on, and binds to the stub. An address that it does not know is
//!   left as it is.
//! - `la_preinit` notes that the program itself begins.
//!
//! Where names are audited, glibc's linker allocates memory for a table of its own as soon as it has
//! found the program's `calloc`, before the C library is ready: `malloc` then does without `brk` for
//! ever, and an allocator of the program's would be called before it can work. So until the program
//! begins, the linker (nobody else asks for `calloc` then) gets its memory from the state.
//!
//! - `init` closes the descriptor by which the linker found the library, and makes `LD_AUDIT` in the
//!   environment what it would be without rtrace.
//!
//! # State
//! A header, the libraries, and for each library its functions sorted by address.

use std::arch::global_asm;

/// Bytes from the code to the state.
pub const STATE: u64 = 4096;

/// Header: the number of libraries; length of `LD_AUDIT=` and the user's
/// own value, 0 where there is none; the descriptor to close; whether the program has begun, its
/// `calloc`, how much of the memory was given to the linker, and that memory.
pub const HEADER: HeaderLayout =
    HeaderLayout { libraries: 0, own: 8, descriptor: 16, begun: 24, calloc: 32, given: 40, memory: 48, size: 2048 };
/// Size of a library: device, inode, whether it is mapped, where to, where its functions begin
/// (from the state), how many there are.
pub const LIBRARY_SIZE: u64 = 48;
/// Size of a function: virtual address, its stub (from the state), bytes that the stub executes in
/// its place, and where it goes on once bound.
pub const FUNCTION_SIZE: u64 = 32;
/// Where in a function stands the address at which it goes on.
pub const GOES_ON: u64 = 24;

/// Places of the members of the header.
pub struct HeaderLayout {
    /// Of the number of libraries.
    pub libraries: u64,
    /// Of the length of the user's own part.
    pub own: u64,
    /// Of the descriptor.
    pub descriptor: u64,
    begun: u64,
    calloc: u64,
    given: u64,
    memory: u64,
    /// Where the libraries begin.
    pub size: u64,
}

global_asm!(
    ".pushsection .text.rtrace_audit, \"ax\", @progbits",
    ".hidden rtrace_audit, rtrace_audit_version, rtrace_audit_open, rtrace_audit_close, rtrace_audit_bind",
    ".hidden rtrace_audit_begin, rtrace_audit_end",
    ".global rtrace_audit, rtrace_audit_version, rtrace_audit_open, rtrace_audit_close, rtrace_audit_bind",
    ".global rtrace_audit_begin, rtrace_audit_end",
    ".p2align 6",
    // init(argc, argv, envp): envp is what the program itself will get.
    "rtrace_audit:",
    "endbr64",
    "mov rdi, [rip + rtrace_audit + {state} + {descriptor}]",
    "mov eax, 3", // close
    "syscall",
    "movabs rcx, 0x54494455415f444c", // LD_AUDIT
    "2: mov rax, [rdx]",
    "test rax, rax",
    "jz 6f",
    "cmp [rax], rcx",
    "jne 3f",
    "cmp byte ptr [rax + 8], 0x3d", // =
    "je 4f",
    "3: add rdx, 8",
    "jmp 2b",
    "4: mov rsi, [rip + rtrace_audit + {state} + {own}]",
    "test rsi, rsi",
    "jz 5f",
    "mov byte ptr [rax + rsi], 0",
    "ret",
    "5: mov rax, [rdx + 8]",
    "mov [rdx], rax",
    "add rdx, 8",
    "test rax, rax",
    "jnz 5b",
    "6: ret",
    // la_version(version)
    ".p2align 4",
    "rtrace_audit_version:",
    "endbr64",
    "xor eax, eax",
    "mov ecx, 2",
    "cmp edi, ecx",
    "cmovae eax, ecx",
    "ret",
    // la_objopen(map, namespace, cookie)
    ".p2align 4",
    "rtrace_audit_open:",
    "endbr64",
    "mov r8, rdi",
    "mov r9, rdx",
    "sub rsp, 152", // struct stat, and the stack stays aligned
    "mov edi, -100", // AT_FDCWD
    "mov rsi, [r8 + 8]",
    "mov rdx, rsp",
    "xor r10d, r10d",
    "mov eax, 262", // newfstatat, which the linker itself uses, too
    "syscall",
    "test eax, eax",
    "jnz 4f",
    "mov rsi, [rsp]",
    "mov rdi, [rsp + 8]",
    "lea rdx, [rip + rtrace_audit + {state} + {header}]",
    "mov rcx, [rip + rtrace_audit + {state} + {libraries}]",
    "2: test rcx, rcx",
    "jz 4f",
    "cmp [rdx], rsi",
    "jne 3f",
    "cmp [rdx + 8], rdi",
    "jne 3f",
    "cmp qword ptr [rdx + 16], 0",
    "jne 4f",
    "mov qword ptr [rdx + 16], 1",
    "mov rax, [r8]",
    "mov [rdx + 24], rax",
    "mov [r9], rdx",
    "mov eax, 3", // binds to it and from it
    "add rsp, 152",
    "ret",
    "3: add rdx, {library_size}",
    "dec rcx",
    "jmp 2b",
    "4: mov eax, 2", // binds from it
    "add rsp, 152",
    "ret",
    // la_objclose(cookie)
    ".p2align 4",
    "rtrace_audit_close:",
    "endbr64",
    "mov rdi, [rdi]",
    "lea rax, [rip + rtrace_audit + {state} + {header}]",
    "imul rcx, [rip + rtrace_audit + {state} + {libraries}], {library_size}",
    "sub rdi, rax",
    "cmp rdi, rcx",
    "jae 2f",
    "mov qword ptr [rax + rdi + 16], 0",
    "2: xor eax, eax",
    "ret",
    // la_symbind64(symbol, index, of the referring object, of the defining object, flags, name)
    ".p2align 4",
    "rtrace_audit_bind:",
    "endbr64",
    "mov rax, [rdi + 8]",
    "test dword ptr [r8], 8", // dlsym asks
    "jz 2f",
    "cmp qword ptr [rip + rtrace_audit + {state} + {begun}], 0",
    "je 6f",
    "jmp 5f",
    "2: mov rcx, [rcx]", // not every defining object is one of ours
    "lea rsi, [rip + rtrace_audit + {state} + {header}]",
    "imul rdi, [rip + rtrace_audit + {state} + {libraries}], {library_size}",
    "mov rdx, rcx",
    "sub rdx, rsi",
    "cmp rdx, rdi",
    "jae 5f",
    "mov rdx, rax",
    "sub rdx, [rcx + 24]",
    "lea r8, [rip + rtrace_audit + {state}]",
    "mov r9, [rcx + 32]",
    "add r9, r8",
    "mov rcx, [rcx + 40]",
    "3: test rcx, rcx", // the functions from r9 on, rcx of them
    "jz 5f",
    "mov rsi, rcx",
    "shr rsi, 1",
    "imul rdi, rsi, {function_size}",
    "add rdi, r9",
    "cmp rdx, [rdi]",
    "je 4f",
    "cmovb rcx, rsi",
    "jb 3b",
    "lea r9, [rdi + {function_size}]",
    "sub rcx, rsi",
    "dec rcx",
    "jmp 3b",
    "4: add rax, [rdi + 16]",
    "mov [rdi + {goes_on}], rax",
    "mov rax, r8",
    "add rax, [rdi + 8]",
    "5: ret",
    "6: cmp dword ptr [r9], 0x6c6c6163", // calloc
    "jne 5b",
    "cmp word ptr [r9 + 4], 0x636f",
    "jne 5b",
    "cmp byte ptr [r9 + 6], 0",
    "jne 5b",
    "mov [rip + rtrace_audit + {state} + {calloc}], rax",
    "lea rax, [rip + 7f]",
    "ret",
    // calloc(count, size)
    ".p2align 4",
    "7: endbr64",
    "cmp qword ptr [rip + rtrace_audit + {state} + {begun}], 0",
    "jne 8f",
    "mov rax, rdi",
    "mul rsi",
    "jo 8f",
    "mov rcx, {memory_size}",
    "sub rcx, [rip + rtrace_audit + {state} + {given}]",
    "cmp rax, rcx",
    "ja 8f",
    "add rax, 15",
    "and rax, -16",
    "mov rcx, [rip + rtrace_audit + {state} + {given}]",
    "add [rip + rtrace_audit + {state} + {given}], rax",
    "lea rax, [rip + rtrace_audit + {state} + {memory}]",
    "add rax, rcx",
    "ret",
    "8: notrack jmp [rip + rtrace_audit + {state} + {calloc}]",
    // la_preinit(cookie)
    ".p2align 4",
    "rtrace_audit_begin:",
    "endbr64",
    "mov qword ptr [rip + rtrace_audit + {state} + {begun}], 1",
    "ret",
    "rtrace_audit_end:",
    ".popsection",
    state = const STATE,
    libraries = const HEADER.libraries,
    own = const HEADER.own,
    descriptor = const HEADER.descriptor,
    begun = const HEADER.begun,
    calloc = const HEADER.calloc,
    given = const HEADER.given,
    memory = const HEADER.memory,
    memory_size = const HEADER.size - HEADER.memory,
    header = const HEADER.size,
    library_size = const LIBRARY_SIZE,
    function_size = const FUNCTION_SIZE,
    goes_on = const GOES_ON,
);

unsafe extern "C" {
    static rtrace_audit: u8;
    static rtrace_audit_version: u8;
    static rtrace_audit_open: u8;
    static rtrace_audit_close: u8;
    static rtrace_audit_bind: u8;
    static rtrace_audit_begin: u8;
    static rtrace_audit_end: u8;
}

/// The code; it begins with what the linker runs first.
pub fn code() -> &'static [u8] {
    let begin = &raw const rtrace_audit;
    // SAFETY: both labels stand in one section of this program's code, in this order.
    unsafe { std::slice::from_raw_parts(begin, (&raw const rtrace_audit_end).addr() - begin.addr()) }
}

/// Where in the code the functions stand for which the linker asks by name.
pub fn functions() -> [(&'static str, u64); 5] {
    let begin = (&raw const rtrace_audit).addr();
    [
        ("la_version", &raw const rtrace_audit_version),
        ("la_objopen", &raw const rtrace_audit_open),
        ("la_objclose", &raw const rtrace_audit_close),
        ("la_symbind64", &raw const rtrace_audit_bind),
        ("la_preinit", &raw const rtrace_audit_begin),
    ]
    .map(|(name, function)| (name, (function.addr() - begin) as u64))
}
