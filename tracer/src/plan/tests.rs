#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_model::LibraryId;

use super::testing::compile;
use super::*;

fn source(image: Image) -> LibrarySource {
    let exports = image.exports().unwrap();
    let library = Library { id: LibraryId(3), path: "/lib/x.so".to_owned(), build_id: None, device: 0, inode: 0 };
    let binding = Binding::of(&image, [("/lib/x.so", &image)].into_iter());
    let image = Arc::new(image);
    LibrarySource { library, attach_path: "/lib/x.so".into(), image, exports, ifuncs: Vec::new(), binding }
}

fn planned(language: &str, code: &str, hazards: Hazards, options: &Options) -> Option<PlannedLibrary> {
    let image = compile(language, code, &["-shared", "-fPIC", "-fcf-protection=none"])?;
    Some(plan(&[source(image)], hazards, options, RegionId(7)).libraries.remove(0))
}

fn unwinding() -> Hazards {
    Hazards { unwind: Some("a test says so".to_owned()), ..Hazards::default() }
}

fn find<'a>(library: &'a PlannedLibrary, symbol: &str) -> &'a PlannedRegion {
    let named = |planned: &&PlannedRegion| planned.region.symbols.iter().any(|name| name.symbol == symbol);
    library.regions.iter().find(named).unwrap()
}

const PAIR: &str = "int f(int x) { return x + 1; } int g(int x) { return x * x; }";

#[test]
fn ids_count_up_by_offset() {
    let Some(library) = planned("c", PAIR, Hazards::default(), &Options::default()) else { return };
    let ids: Vec<u32> = library.regions.iter().map(|planned| planned.region.id.0).collect();
    assert_eq!(ids, [7, 8]);
    assert!(library.regions.is_sorted_by_key(|planned| planned.region.file_offset));
    assert!(library.regions.iter().all(|planned| planned.region.library == LibraryId(3)));
}

#[test]
fn hazards_and_options_choose_the_exit() {
    const LOOP: &str = "int f(int x) { int s = 1; while (x > s) s += s * x >> 3 | 1; return s; }";
    let policy = |code, hazards, exit| {
        let library = planned("c", code, hazards, &Options { exit, ..Options::default() })?;
        Some(find(&library, "f").exit.policy())
    };
    let Some(harmless) = policy(LOOP, Hazards::default(), None) else { return };
    assert_eq!(harmless, ExitPolicy::Uretprobe);
    assert_eq!(policy(LOOP, unwinding(), None), Some(ExitPolicy::RetSite));
    assert_eq!(policy(PAIR, Hazards::default(), None), Some(ExitPolicy::Instant));
    assert_eq!(policy(PAIR, unwinding(), None), Some(ExitPolicy::Instant));
    for wanted in [ExitPolicy::Uretprobe, ExitPolicy::RetSite, ExitPolicy::EntryOnly] {
        for code in [LOOP, PAIR] {
            assert_eq!(policy(code, unwinding(), Some(wanted)), Some(wanted));
        }
    }
}

/// Its call would begin after that of the function that it jumps to.
#[test]
fn a_brief_function_that_jumps_to_another_stays_hooked() {
    let code = "int absent(int); int jumps(int x) { return absent(x * 5 + 1); }";
    let policy = |hazards| Some(find(&planned("c", code, hazards, &Options::default())?, "jumps").exit.policy());
    let Some(harmless) = policy(Hazards::default()) else { return };
    assert_eq!(harmless, ExitPolicy::Uretprobe);
    assert_eq!(policy(unwinding()), Some(ExitPolicy::Instant));
}

#[test]
fn a_brief_function_is_no_instant_where_its_accesses_count() {
    let code = "int f(int *x) { return *x + 1; } int g(int x) { return x + 1; }";
    let options = Options { keeps_accesses: true, ..Options::default() };
    let Some(library) = planned("c", code, unwinding(), &options) else { return };
    let policies = ["f", "g"].map(|symbol| find(&library, symbol).exit.policy());
    assert_eq!(policies, [ExitPolicy::RetSite, ExitPolicy::Instant]);
}

#[test]
fn special_functions_are_left_alone_whatever_is_asked() {
    let code = "int _setjmp(void *x) { return *(int *)x; } int dlsym(int x) { return x + 1; }";
    let options = Options { exit: Some(ExitPolicy::Uretprobe), ..Options::default() };
    let Some(library) = planned("c", code, Hazards::default(), &options) else { return };
    assert_eq!(find(&library, "_setjmp").exit.policy(), ExitPolicy::EntryOnly);
    assert_eq!(find(&library, "dlsym").exit.policy(), ExitPolicy::RetSite);
}

#[test]
fn patterns_select() {
    let options =
        Options { include: vec!["*".parse().unwrap()], exclude: vec!["f".parse().unwrap()], ..Options::default() };
    let Some(library) = planned("c", PAIR, Hazards::default(), &options) else { return };
    assert_eq!(library.regions.len(), 1);
    find(&library, "g");
}

#[test]
fn an_ifunc_is_planned_where_its_implementation_is() {
    let code = "static int real(int x) { return x + 2; } static void *pick(void) { return real; } \
        int f(int) __attribute__((ifunc(\"pick\"))); int g(int x) { return x + 1; }";
    let Some(image) = compile("c", code, &["-shared", "-fPIC"]) else { return };
    let mut source = source(image);
    let function = source.exports.functions.iter().position(|function| function.ifunc).unwrap();
    let g = source.exports.functions.iter().find(|function| function.name == "g").unwrap().clone();
    let unresolved = plan(&[], Hazards::default(), &Options::default(), RegionId(0));
    assert!(unresolved.libraries.is_empty());
    source.ifuncs = vec![ifunc::Resolved { function, address: g.address, size: g.size }];
    let library = plan(&[source], Hazards::default(), &Options::default(), RegionId(0)).libraries.remove(0);
    assert_eq!(library.regions.len(), 1);
    assert_eq!(library.regions[0].region.symbols.len(), 2);
    assert_eq!(library.regions[0].region.file_offset, g.file_offset);
}

#[test]
fn an_ifunc_without_implementation_is_refused() {
    let code = "static int real(int x) { return x + 2; } static void *pick(void) { return real; } \
        int f(int) __attribute__((ifunc(\"pick\")));";
    let Some(library) = planned("c", code, Hazards::default(), &Options::default()) else { return };
    assert!(library.regions.is_empty());
    assert!(library.refused[0].reason.contains("IFUNC"));
}

#[test]
fn a_nop_that_becomes_a_call_is_refused() {
    let code = "__asm__(\".globl f\\n.type f,@function\\nf: .byte 0x0f,0x1f,0x44,0,0\\nud2\\n.size f,.-f\");";
    let Some(library) = planned("c", code, unwinding(), &Options::default()) else { return };
    assert_eq!((library.regions.len(), library.refused.len()), (0, 1));
}

#[test]
fn a_site_serves_one_region() {
    let code = "__asm__(\".globl f\\n.type f,@function\\nf: xor %eax,%eax\\n1: ret\\n.size f,.-f\\n\
        .globl g\\n.type g,@function\\ng: push %rax\\npop %rax\\nret\\n.size g,.-g\\n\
        .globl h\\n.type h,@function\\nh: jmp g\\n.size h,.-h\\n\
        .globl nested\\n.type nested,@function\\n.set nested,1b\\n.size nested,1\");";
    let options = Options { exit: Some(ExitPolicy::RetSite), ..Options::default() };
    let Some(library) = planned("c", code, unwinding(), &options) else { return };
    assert_eq!(find(&library, "g").exit.policy(), ExitPolicy::RetSite);
    for symbol in ["h", "nested"] {
        assert_eq!(find(&library, symbol).exit, Exit::Instant, "{symbol}");
    }
    let planned = find(&library, "f");
    assert_eq!(planned.exit.policy(), ExitPolicy::EntryOnly);
    assert_eq!(planned.region.exit, ExitPolicy::EntryOnly);
}

#[test]
fn what_calls_itself_is_seen_at_its_exits() {
    let code = "int f(int x) { return x > 0 ? f(x - 1) + f(x - 2) : 1; } int g(int x) { return x + 1; }";
    let exit = |hazards, exit| {
        let library = planned("c", code, hazards, &Options { exit, ..Options::default() })?;
        let [f, g] = ["f", "g"].map(|symbol| find(&library, symbol));
        assert_ne!(g.choice, Choice::CallsItself);
        Some((f.exit.policy(), f.choice))
    };
    let Some(harmless) = exit(Hazards::default(), None) else { return };
    assert_eq!(harmless, (ExitPolicy::RetSite, Choice::CallsItself));
    assert_eq!(exit(Hazards::default(), Some(ExitPolicy::Uretprobe)), Some((ExitPolicy::Uretprobe, Choice::Common)));
    assert_eq!(exit(unwinding(), None), Some((ExitPolicy::RetSite, Choice::Common)));
}

#[test]
fn what_calls_itself_and_hides_its_exits_is_hooked() {
    let hidden =
        "__asm__(\".globl f\\n.type f,@function\\nf: call f@plt\\nadd %rdi,%rax\\njmp *%rax\\n.size f,.-f\\n\");";
    // Two functions with one end.
    let shared = "__asm__(\".macro function name\\n.globl \\\\name\\n.type \\\\name,@function\\n\\
        \\\\name: .cfi_startproc\\ncall \\\\name@plt\\njmp end\\n.cfi_endproc\\n.size \\\\name,.-\\\\name\\n.endm\\n\\
        function f\\nfunction g\\n\\
        end: .cfi_startproc\\n.cfi_def_cfa_offset 16\\nret\\n.cfi_endproc\\n\");";
    for (code, symbol) in [(hidden, "f"), (shared, "g")] {
        let Some(library) = planned("c", code, Hazards::default(), &Options::default()) else { return };
        let planned = find(&library, symbol);
        assert_eq!(planned.choice, Choice::CallsItself, "{symbol}");
        assert_eq!((planned.exit.policy(), planned.region.exit), (ExitPolicy::Uretprobe, ExitPolicy::Uretprobe));
    }
}

#[test]
fn a_region_begins_at_its_function_wherever_its_site_is() {
    let code =
        "__asm__(\".globl f\\n.type f,@function\\nf: test %edi,%edi\\npush %rbx\\npop %rbx\\nret\\n.size f,.-f\");";
    let Some(library) = planned("c", code, unwinding(), &Options::default()) else { return };
    let planned = find(&library, "f");
    assert_eq!(planned.entry, Site::new(planned.region.file_offset + 2, SiteCost::Emulated));
    assert_eq!(planned.exit.policy(), ExitPolicy::Instant);
}

/// Cold fragments, exception handlers and switches as a compiler makes them.
#[test]
fn compiled_code_is_proven() {
    let code = "extern \"C\" {
        int callee(int); void sink(int);
        int catcher(int x) { try { return callee(x) + 1; } catch (int y) { sink(y); return y; } catch (...) { return 5; } }
        int thrower(int x) { if (__builtin_expect(x < 0, 0)) throw x; return x * 2; }
        int tail(int x) { sink(x); return callee(x + 1); }
        int pointer(int (**f)(int), int x) { sink(x); return (*f)(x); } }";
    let Some(library) = planned("c++", code, unwinding(), &Options::default()) else { return };
    for symbol in ["catcher", "thrower", "tail", "pointer"] {
        let exit = &find(&library, symbol).exit;
        assert_eq!(exit.policy(), ExitPolicy::RetSite, "{symbol}: {exit:?}");
    }
    let leaving = planned("c++", code, unwinding(), &Options { exit: Some(ExitPolicy::RetSite), ..Options::default() });
    let library = leaving.expect("it compiled before");
    let thrower = find(&library, "thrower").exit.sites();
    assert!(thrower.iter().all(|site| site.condition.is_none()), "the throwing path is no exit: {thrower:?}");
}

#[test]
fn what_only_computes_is_hooked_though_the_program_unwinds() {
    let code = "int absent(int); int local_only(int *x) { int sum = 0; while (*x) sum += *x++; return sum; } \
        int recurses(int x) { return x > 1 ? recurses(x - 1) * recurses(x - 2) : 1; } \
        int calls(int x) { return absent(x) + 1; } int jumps(int x) { return calls(x + 1); }";
    let options = |can_refuse_hooks| Options { can_refuse_hooks, ..Options::default() };
    let exits = |hazards, options: &Options| {
        let library = planned("c", code, hazards, options)?;
        Some(["local_only", "recurses", "calls"].map(|symbol| {
            let planned = find(&library, symbol);
            (planned.exit.policy(), planned.choice)
        }))
    };
    let common = (ExitPolicy::RetSite, Choice::Common);
    let Some(chosen) = exits(unwinding(), &options(true)) else { return };
    assert_eq!(chosen, [(ExitPolicy::Uretprobe, Choice::Closed), (ExitPolicy::RetSite, Choice::CallsItself), common]);
    assert_eq!(exits(unwinding(), &options(false)), Some([common; 3]));
    let says_so = Some("a test says so".to_owned());
    for hazards in
        [Hazards { stacks: says_so.clone(), ..unwinding() }, Hazards { interrupts: says_so.clone(), ..unwinding() }]
    {
        assert_eq!(exits(hazards, &options(true)), Some([common; 3]));
    }
    let handlers = Hazards { signal_stacks: says_so, ..unwinding() };
    assert_eq!(exits(handlers, &options(true)).map(|chosen| chosen[0].1), Some(Choice::Closed));
}

#[test]
fn a_jump_after_a_few_instructions_is_enter_and_exit() {
    let code = "int absent(int); int jumps(int x) { return absent(x * 5 + 1); }";
    let Some(library) = planned("c", code, unwinding(), &Options::default()) else { return };
    let planned = find(&library, "jumps");
    assert_eq!(planned.exit, Exit::Instant);
    assert_eq!(planned.entry.cost, SiteCost::Emulated);
    assert!(planned.entry.file_offset > planned.region.file_offset);
}

/// Functions that need no single step as long as their return is not hooked, and two that are as well hooked.
#[test]
fn a_hook_that_would_make_an_enter_dear_is_not_wanted() {
    let function = |name, body| {
        format!("__asm__(\".globl {name}\\n.type {name},@function\\n{name}: {body}\\n.size {name},.-{name}\");")
    };
    let code = [
        function("frame", "sub $8,%rsp; call *%rdi; add $8,%rsp; ret"),
        function("next", "lea 1(%rdi),%eax; ret"),
        function("pushed", "push %rbx; call *%rdi; pop %rbx; ret"),
        function("jumping", "sub $8,%rsp; call *%rdi; add $8,%rsp; jmp *%rsi"),
    ]
    .concat();
    let exits = |steps, exit| {
        let options = Options { emulated: Emulation { long_nops: true, steps }, exit, ..Options::default() };
        let library = planned("c", &code, Hazards::default(), &options)?;
        Some(["frame", "next", "pushed", "jumping"].map(|name| {
            let planned = find(&library, name);
            (planned.exit.policy(), planned.entry.cost)
        }))
    };
    let [emulated, stepped] = [SiteCost::Emulated, SiteCost::SingleStep].map(|cost| (ExitPolicy::Uretprobe, cost));
    let hooked = [stepped, stepped, emulated, stepped];
    let Some(without) = exits(false, None) else { return };
    assert_eq!(without, [stepped, (ExitPolicy::Instant, SiteCost::SingleStep), emulated, stepped]);
    assert_eq!(exits(true, Some(ExitPolicy::Uretprobe)), Some(hooked));
    let frame = (ExitPolicy::RetSite, SiteCost::Written(Step::Frame { words: 1 }));
    let next = (ExitPolicy::Instant, SiteCost::Written(Step::Return));
    assert_eq!(exits(true, None), Some([frame, next, emulated, stepped]));
}
