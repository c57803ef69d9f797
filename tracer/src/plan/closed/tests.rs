#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_symbolizer::Image;

use super::super::testing::compile;
use super::*;

/// A C library of three functions, of which the first comes back.
const SYSTEM: &str = "int memcpy(int x) { return x; } int qsort(int x) { return x; } int read(int x) { return x; }";

/// Which of the functions that this code exports are closed.
fn closed_in(language: &str, code: &str, flags: &[&str]) -> Option<Vec<String>> {
    let image = compile(language, code, &[&["-shared", "-fPIC", "-fno-inline", "-fno-builtin"], flags].concat())?;
    let system = compile("c", SYSTEM, &["-shared", "-fPIC", "-fno-builtin"])?;
    let modules = [("/lib/libx.so", &image), ("/lib/libc.so.6", &system)];
    let functions = image.exports().unwrap().functions;
    let entries: Vec<u64> = functions.iter().map(|function| function.address).collect();
    let text = Text::new(&image, entries.clone());
    let binding = Binding::of(&image, modules.into_iter());
    let sizes = functions.iter().map(|function| (function.address, function.size)).collect();
    let library = Library { text: &text, binding: &binding, sizes, special: HashSet::default() };
    let closed = Closed::among(&library, entries);
    let found = functions.into_iter().filter(|function| closed.contains(function.address));
    let mut names: Vec<String> = found.map(|function| function.name).collect();
    names.sort();
    Some(names)
}

/// The same for code that calls what is named in it without defining it.
fn closed(code: &str) -> Option<Vec<String>> {
    closed_in("c", code, &["-w"])
}

/// A function `f` of these instructions.
fn assembly(instructions: &str) -> String {
    format!(
        "__asm__(\".globl f\\n.type f,@function\\nf: .cfi_startproc\\n{}\\n.cfi_endproc\\n.size f,.-f\\n\");",
        instructions.replace("; ", "\\n")
    )
}

#[test]
fn what_computes_is_closed() {
    let code = "
        int leaf(int x) { return x + 1; }
        static int local(int *x) { return x[0] + leaf(x[1]); }
        int caller(int *x) { return local(x) * 2; }
        int tail(int *x) { return local(x + 1); }
        int copies(int x) { return memcpy(x) + 1; }
        int copies_last(int x) { return memcpy(x); }
        int loops(int *x, int n) { int sum = 0; for (int i = 0; i < n; i++) sum += leaf(x[i]); return sum; }
        int table(int x, int y) { switch (x) { case 0: return y; case 1: return y * 3; case 2: return y ^ 5;
            case 3: return y << 2; case 4: return y + 9; case 5: return leaf(y); } return 0; }
        int framed(int n) { volatile char room[n]; room[0] = 1; return room[n - 1] + leaf(n); }
        int aligned(int n) { volatile int x __attribute__((aligned(64))) = n; return leaf(x); }
        void dies(int *x) { if (!x) __builtin_trap(); *x = 0; }";
    let all = ["aligned", "caller", "copies", "copies_last", "dies", "framed", "leaf", "loops", "table", "tail"];
    for flags in [&[][..], &["-fcf-protection=none"], &["-fno-plt"], &["-Wl,-z,now"], &["-fstack-clash-protection"]] {
        let Some(names) = closed_in("c", code, flags) else { return };
        assert_eq!(names, all, "{flags:?}");
    }
}

#[test]
fn what_may_go_elsewhere_is_not() {
    let code = "
        int pointer(int (*f)(int), int x) { return f(x) + 1; }
        int last_pointer(int (*f)(int), int x) { return f(x + 1); }
        int (*variable)(int); int through_variable(int x) { return variable(x) + 1; }
        int last_through_variable(int x) { return variable(x); }
        int sorts(int x) { return qsort(x) + 1; }
        int reads(int x) { return read(x); }
        int unknown(int x) { return absent(x) + 1; }
        int caller(int x) { return unknown(x) * 2; }
        static int local(int x) { return absent(x) ^ 3; }
        int caller_of_local(int x) { return local(x) * 5; }
        int rarely(int x) { if (__builtin_expect(x == 77, 0)) return absent(x); return x; }
        long asks(long x) { __asm__ volatile(\"syscall\" : \"+a\"(x) :: \"rcx\", \"r11\"); return x; }
        void *where(void) { return __builtin_return_address(0); }
        int harmless(int x) { return x - 1; }";
    let Some(names) = closed(code) else { return };
    assert_eq!(names, ["harmless"]);
}

#[test]
fn functions_that_call_each_other_are_judged_together() {
    let code = |end: &str| {
        format!(
            "int odd(int x); int even(int x) {{ return x ? odd(x - 1) * 2 : 1; }} int odd(int x) {{ return x ? even(x - 1) + 1 : {end}; }}"
        )
    };
    let Some(names) = closed(&code("0")) else { return };
    assert_eq!(names, ["even", "odd"]);
    assert_eq!(closed(&code("absent(x)")).unwrap(), Vec::<String>::new());
}

#[test]
fn exceptions_are_told() {
    let code = "extern \"C\" { int absent(int) noexcept; void sink(int); struct Guard { ~Guard() { sink(1); } };
        int throws(int x) { if (x) throw x; return 1; }
        int rethrows(int x) { return throws(x) + 1; }
        int catches(int x) { try { sink(x); } catch (...) { return 5; } return 0; }
        int cleans(int x) { Guard guard; sink(x); return x; }
        int computes(int x) { return x * 3; } }";
    let Some(names) = closed_in("c++", code, &[]) else { return };
    assert_eq!(names, ["computes"]);
}

#[test]
fn the_return_address_and_the_stack_stay_as_they_are() {
    let closed_code = ["sub $24, %rsp; mov %rdi, 8(%rsp); add $24, %rsp; ret", "push %rbx; pop %rbx; ret"];
    let open_code = [
        "mov (%rsp), %rax; ret",
        "mov %rdi, (%rsp); ret",
        "sub $8, %rsp; mov 8(%rsp), %rax; add $8, %rsp; ret",
        "push %rbp; mov %rsp, %rbp; mov %rdi, 8(%rbp); pop %rbp; ret",
        "mov %rsp, %rax; mov %rdi, %rsp; mov %rax, %rsp; ret",
        "push %rbp; mov %rsp, %rbp; mov %rdi, %rsp; leave; ret",
        "xchg %rdi, %rsp; xchg %rdi, %rsp; ret",
        "pop %rax; push %rax; ret",
        "push %rdi; ret",
        "ret $8",
        "call 1f; 1: pop %rax; ret",
        "wrfsbase %rdi; ret",
        "int $0x80; ret",
    ];
    for (instructions, expected) in
        closed_code.iter().map(|code| (code, true)).chain(open_code.iter().map(|code| (code, false)))
    {
        let Some(names) = closed(&assembly(instructions)) else { return };
        assert_eq!(names.contains(&"f".to_owned()), expected, "{instructions}");
    }
}

#[test]
fn a_function_with_a_special_name_is_open_and_so_are_its_callers() {
    let code = "int f(int x) { return x + 1; } int g(int x) { return f(x) * 2; } int h(int x) { return x; }";
    let Some(image) = compile("c", code, &["-shared", "-fPIC", "-fno-inline"]) else { return };
    let functions = image.exports().unwrap().functions;
    let address = |name| functions.iter().find(|function| function.name == name).unwrap().address;
    let entries = ["f", "g", "h"].map(address);
    let text = Text::new(&image, entries.to_vec());
    let binding = Binding::of(&image, std::iter::once(("/lib/libx.so", &image)));
    let library = Library {
        text: &text,
        binding: &binding,
        sizes: HashMap::default(),
        special: [address("f")].into_iter().collect(),
    };
    let closed = Closed::among(&library, entries.to_vec());
    assert_eq!(entries.map(|entry| closed.contains(entry)), [false, false, true]);
}

/// What is known of libraries that every machine has.
#[test]
fn real_libraries_are_judged_right() {
    let open = |name: &str| {
        let path = format!("/usr/lib/x86_64-linux-gnu/{name}");
        Image::open(std::path::Path::new(&path)).map_err(|error| eprintln!("skipped: {error}")).ok()
    };
    let (Some(libc), Some(libz)) = (open("libc.so.6"), open("libz.so.1")) else { return };
    let compute = ["crc32_z", "adler32_z", "inflateReset", "zError", "memfrob", "ntohl"];
    let go_elsewhere =
        ["deflate", "inflateInit_", "gzread", "qsort", "printf", "read", "longjmp", "getcontext", "fork"];
    for image in [&libz, &libc] {
        let functions = image.exports().unwrap().functions;
        let entries: Vec<u64> = functions.iter().map(|function| function.address).collect();
        let text = Text::new(image, entries.clone());
        let binding = Binding::of(image, std::iter::once(("/lib/libc.so.6", &libc)));
        let sizes = functions.iter().map(|function| (function.address, function.size)).collect();
        let library = Library { text: &text, binding: &binding, sizes, special: HashSet::default() };
        let closed = Closed::among(&library, entries);
        for function in functions {
            let is_closed = closed.contains(function.address);
            assert!(is_closed || !compute.contains(&function.name.as_str()), "{}", function.name);
            assert!(!is_closed || !go_elsewhere.contains(&function.name.as_str()), "{}", function.name);
        }
    }
}
