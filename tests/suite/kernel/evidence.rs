//! Probes sit only on what is proven to be code that is executed as it stands in its file, and no call is missed where
//! the instructions in front of them fault. Each program says itself what it computes, and how often it calls what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rtrace_model::Ending;

use crate::common::launch;
use crate::common::recording::{Recording, names};
use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::compile_texts;

/// Traces a program of the folder; it does what it does untraced.
fn trace(folder: &Path, options: &[&str]) -> (Output, Recording) {
    let program = Command::new(folder.join("program"));
    let untraced = launch::alone(&program);
    assert!(untraced.status.success() && !untraced.stdout.is_empty());
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let (traced, recording) = rtrace::run(&options, &program);
    let complaint = String::from_utf8_lossy(&traced.stderr);
    assert_eq!(traced.stdout, untraced.stdout, "{complaint}");
    assert_eq!(traced.status, untraced.status, "{complaint}");
    (traced, recording)
}

/// How often each function was called.
fn counts(recording: &Recording) -> BTreeMap<String, usize> {
    let names = names(recording.regions());
    let mut counts = BTreeMap::new();
    recording.calls().for_each(|call| *counts.entry(names[&call.region].clone()).or_default() += 1);
    counts
}

fn told(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

/// What `rtrace plan` says of the library of a program.
fn planned(folder: &Path, library: &str) -> String {
    let program = folder.join("program");
    let output = rtrace::command().args(["plan", "--lib", library, "--"]).arg(program).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn library(source: &str, flags: &[&str], program: &str) -> PathBuf {
    let flags = [&["-O1", "-shared"], flags].concat();
    compile_texts(&[(source, "libevidence.so", &flags), (program, "program", &["-O1", "-levidence"])])
}

#[test]
fn what_the_linker_patches_gets_no_probe() {
    // `patched` begins with such an instruction, `held` has one behind its first, `calls` behind a call.
    const LIBRARY: &str = r#"asm(".globl patched, held, calls\n"
        ".type patched, @function; .type held, @function; .type calls, @function\n"
        "patched: movabs $value, %rax; mov (%rax), %rax; ret; .size patched, . - patched\n"
        "held: push %rbx; movabs $value, %rbx; mov (%rbx), %rax; pop %rbx; ret; .size held, . - held\n"
        "calls: push %rbx; call held@PLT; movabs $value, %rbx; add (%rbx), %rax; pop %rbx; ret; .size calls, . - calls\n"
        ".data; .globl value; .hidden value; value: .quad 41; .text");"#;
    const PROGRAM: &str = r#"#include <stdio.h>
        long patched(void), held(void), calls(void);
        int main(void) { long s = 0; for (int i = 0; i < 90; i++) s += patched() + held() + calls(); printf("%ld\n", s); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = library(LIBRARY, &["-Wl,-z,notext"], PROGRAM);
    let (_, recording) = trace(&folder, &["--lib", "libevidence.so"]);
    assert_eq!(counts(&recording), told(&[("held", 180), ("calls", 90)]));
    let plan = planned(&folder, "libevidence.so");
    assert!(plan.contains("the dynamic linker patches the instruction") && plan.contains("patched"), "{plan}");
}

#[test]
fn a_writable_segment_is_refused() {
    const LIBRARY: &str = "long f(long x) { return x + 1; }";
    const PROGRAM: &str = "#include <stdio.h>\nlong f(long); int main(void) { printf(\"%ld\\n\", f(1)); }";
    let Some(_turn) = Turn::take() else { return };
    let folder = library(LIBRARY, &["-fPIC", "-nostdlib", "-Wl,-N,-z,noseparate-code"], PROGRAM);
    let plan = planned(&folder, "libevidence.so");
    assert!(plan.contains("in a writable segment"), "{plan}");
    let program = folder.join("program").display().to_string();
    rtrace::refuses(&["run", "--lib", "libevidence.so", "-o", "/nonexistent/trace", "--", &program]);
}

#[test]
fn a_function_at_the_beginning_of_a_library_is_called() {
    const LIBRARY: &str = "int f(int x) { __asm__(\"\"); return x + 1; } int g(int x) { __asm__(\"\"); return x + 2; }";
    const PROGRAM: &str = "#include <stdio.h>\nint f(int), g(int);
        int main(void) { int s = 0; for (int i = 0; i < 100; i++) s += f(i) + g(i); printf(\"%d\\n\", s); }";
    let Some(_turn) = Turn::take() else { return };
    let folder = library(LIBRARY, &["-fPIC", "-Wl,-e,f"], PROGRAM);
    let (_, recording) = trace(&folder, &["--lib", "libevidence.so"]);
    assert_eq!(counts(&recording), told(&[("f", 100), ("g", 100)]));
}

#[test]
fn tables_that_are_said_to_be_functions_keep_their_values() {
    // One is read at its address, one through a register, and one reads as a function, too.
    const LIBRARY: &str = r#"asm(".globl table, indexed, likely, user\n"
        ".type table, @function; .type indexed, @function; .type likely, @function; .type user, @function\n"
        ".balign 8; table: .Lt: .quad 0x1122334455667788, 0x0102030405060708; .size table, . - table\n"
        "indexed: .Li: .quad 1, 2, 3, 4; .size indexed, . - indexed\n"
        "likely: .Lk: .byte 0x53, 0x5b, 0xc3, 0x90, 0x53, 0x5b, 0xc3, 0x90; .size likely, . - likely\n"
        "user: mov .Lt(%rip), %rax; lea .Li(%rip), %rdx; add 8(%rdx), %rax; add .Lk(%rip), %rax; ret; .size user, . - user");"#;
    const PROGRAM: &str = r#"#include <stdio.h>
        long user(void); int main(void) { for (int i = 0; i < 10; i++) printf("%lx\n", user()); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = library(LIBRARY, &[], PROGRAM);
    let (_, recording) = trace(&folder, &["--lib", "libevidence.so"]);
    assert_eq!(counts(&recording), told(&[("user", 10)]));
}

#[test]
fn tables_whose_addresses_others_have_keep_their_values() {
    // Each reads as a function. Code has the address of the first, a slot that of the second, data that of the third, the
    // program that of the fourth.
    const LIBRARY: &str = r#"asm(".globl own, slot, word, theirs, user\n"
        ".type own, @function; .type slot, @function; .type word, @function; .type theirs, @function; .type user, @function\n"
        "own: .Lo: .byte 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x90, 0x90; .size own, 8\n"
        "slot: .byte 0x53, 0x48, 0x89, 0xe3, 0x5b, 0xc3, 0x90, 0x90; .size slot, 8\n"
        "word: .Lw: .byte 0x50, 0x48, 0x89, 0xe0, 0x58, 0xc3, 0x90, 0x90; .size word, 8\n"
        "theirs: .byte 0x51, 0x48, 0x89, 0xe1, 0x59, 0xc3, 0x90, 0x90; .size theirs, 8\n"
        "user: cmp $1, %edi; je 1f; jg 2f; lea .Lo(%rip), %rax; ret\n"
        "1: mov slot@GOTPCREL(%rip), %rax; ret\n 2: mov .Lp(%rip), %rax; ret; .size user, . - user\n"
        ".data; .balign 8; .Lp: .quad .Lw; .text");"#;
    const PROGRAM: &str = r#"#include <stdio.h>
        const long *user(int); extern const long theirs __attribute__((weak));
        int main(void) { for (int i = 0; i < 9; i++) printf("%lx %lx\n", *user(i % 3), theirs); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = library(LIBRARY, &[], PROGRAM);
    let (_, recording) = trace(&folder, &["--lib", "libevidence.so"]);
    assert_eq!(counts(&recording), told(&[("user", 9)]));
}

#[test]
fn constants_that_read_as_a_call_keep_their_values() {
    const PROGRAM: &str = r#"#include <stdio.h>
        __attribute__((noinline)) int loc(volatile int *p) { for (int i = 0; i < 10; i++) *p = i; return *p; }
        extern unsigned char tab[]; int f(volatile int *);
        asm("f: push %rbx\n jmp 1f\n tab: .byte 0xe8\n .long loc-.-4\n .byte 0x90,0x90,0x90,0x90\n 1: call loc\n pop %rbx\n ret\n"
            ".type f,@function\n .size f,.-f");
        int main(void) { volatile int v; for (int i = 0; i < 9; i++) f(&v); printf("%x %x %x %x\n", tab[5], tab[6], tab[7], tab[8]); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = compile_texts(&[(PROGRAM, "program", &["-O2", "-no-pie"])]);
    let (_, recording) = trace(&folder, &["--lib", "exe", "--func", "loc"]);
    assert_eq!(counts(&recording), told(&[("loc", 9)]));
}

/// A function that reads what its argument points to, and one that divides: both by their first instructions.
const FAULTING: &str = "int leaf(volatile int *); long quotient;
    int peek(const int *p) { int x = *p; if (x > 100) return leaf((volatile int *) p); return x * 2 + 1; }
    int leaf(volatile int *p) { for (int i = 0; i < 10; i++) *p = i; return *p; }
    long divide(long a, long b) { a /= b; if (a > 100) quotient++; return a; }";

#[test]
fn calls_that_fault_at_once_are_counted() {
    const PROGRAM: &str = r#"#include <setjmp.h>
        #include <signal.h>
        #include <stdio.h>
        int peek(const int *); long divide(long, long); static sigjmp_buf before;
        static void handler(int signal) { siglongjmp(before, 1); }
        int main(void) { signal(SIGSEGV, handler); signal(SIGFPE, handler); int five = 5; volatile int left = 0;
            for (volatile int i = 0; i < 1000; i++)
                if (!sigsetjmp(before, 1)) { peek(i & 1 ? (int *) 8 : &five); divide(i, i % 3); } else left++;
            printf("%d left\n", left); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = library(FAULTING, &["-O2", "-fPIC", "-fcf-protection=none"], PROGRAM);
    let (_, recording) = trace(&folder, &["--lib", "libevidence.so"]);
    assert_eq!(counts(&recording), told(&[("peek", 1000), ("divide", 500)]));
}

#[test]
fn a_fault_behind_a_call_does_not_belong_to_it() {
    const PROGRAM: &str = r#"#include <signal.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int peek(const int *); int leaf(volatile int *); static char *page; static volatile int v;
        static void handler(int signal) { leaf(&v); usleep(20000); mprotect(page, 4096, PROT_READ | PROT_WRITE); }
        __attribute__((noinline)) static int use(char *q, int k) { int ok = k, r = peek(&ok); *(volatile int *) q = r; return k > 3 ? peek(&ok) + 1 : r; }
        int main(void) { page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            signal(SIGSEGV, handler);
            for (int i = 0; i < 20; i++) { mprotect(page, 4096, PROT_READ); use(page, 1); }
            puts("20 faults"); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = library(FAULTING, &["-O2", "-fPIC", "-fcf-protection=none"], PROGRAM);
    let (_, recording) = trace(&folder, &["--lib", "libevidence.so", "--func", "peek", "--func", "leaf"]);
    assert_eq!(counts(&recording), told(&[("peek", 20), ("leaf", 20)]));
    let names = names(recording.regions());
    for call in recording.calls() {
        assert_eq!(call.depth, 0, "a call of {} is in another one", names[&call.region]);
        assert_ne!(call.ending, Ending::Unwound);
        let duration = call.duration.unwrap_or_default();
        assert!(duration < 10_000_000, "a call of {} took {duration} ns", names[&call.region]);
    }
}

/// A handler knows by its address the one instruction that may fault.
#[test]
fn no_stub_faults_in_the_place_of_its_function() {
    const LIBRARY: &str = r#"asm(".globl raw, fault; .type raw, @function; .type fault, @function\n"
        "raw: mov (%rdi), %eax; ret; .size raw, . - raw\n"
        "fault: mov $-1, %eax; ret; .size fault, . - fault");"#;
    const PROGRAM: &str = r#"#define _GNU_SOURCE
        #include <dlfcn.h>
        #include <signal.h>
        #include <stdio.h>
        #include <ucontext.h>
        #include <unistd.h>
        int raw(const int *);
        static void handler(int signal, siginfo_t *info, void *context) {
            greg_t *ip = &((ucontext_t *) context)->uc_mcontext.gregs[REG_RIP];
            if (*ip != (greg_t) dlsym(RTLD_DEFAULT, "raw")) _exit(42);
            *ip = (greg_t) dlsym(RTLD_DEFAULT, "fault"); }
        int main(void) { struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
            sigaction(SIGSEGV, &action, 0); int faults = 0, ok = 1;
            for (int i = 0; i < 100; i++) faults += raw(i & 1 ? (int *) 8 : &ok) < 0;
            printf("%d faults\n", faults); }"#;
    let Some(_turn) = Turn::take() else { return };
    let folder = library(LIBRARY, &[], PROGRAM);
    trace(&folder, &["--lib", "libevidence.so", "--func", "raw", "--stubs"]);
}
