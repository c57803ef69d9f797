#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_code::copies::Registers;
use rtrace_code::testing::compile;
use rtrace_model::LibraryId;

use super::*;

fn source(image: Image) -> LibrarySource {
    let exports = image.exports().unwrap();
    let library =
        Library { id: LibraryId(3), path: "/lib/x.so".to_owned(), apart: None, build_id: None, device: 0, inode: 0 };
    LibrarySource::new(library, "/lib/x.so".into(), Arc::new(image), exports, Vec::new())
}

fn planned(language: &str, code: &str, options: &PlanOptions) -> Option<PlannedLibrary> {
    let image = compile(language, code, &["-shared", "-fPIC", "-fcf-protection=none"])?;
    Some(plan(&[source(image)], options, RegionId(7)).libraries.remove(0))
}

fn find<'a>(library: &'a PlannedLibrary, symbol: &str) -> &'a PlannedRegion {
    let named = |planned: &&PlannedRegion| planned.region.symbols.iter().any(|name| name.symbol == symbol);
    library.regions.iter().find(named).unwrap()
}

const PAIR: &str = "int f(int x) { return x + 1; } int g(int x) { return x * x; }";

#[test]
fn a_library_without_functions_is_refused_as_such() {
    let Some(library) = planned("c", "static int n; int *p = &n;", &PlanOptions::default()) else { return };
    assert!(library.regions.is_empty());
    let refusal = Refusal { name: "/lib/x.so".to_owned(), reason: Reason::NoExports };
    assert_eq!(library.refused.last(), Some(&refusal));
}

/// Notes of two places: one is a nop, the other is within an instruction that has the bytes of one.
#[test]
fn marked_places_are_nops_to_which_instructions_lead() {
    let note = |name: &str, place: &str| {
        format!(
            ".pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n.4byte 8,994f-993f,3\\n.asciz \\\"stapsdt\\\"\\n\
             993: .8byte {place},0,0\\n.asciz \\\"app\\\"\\n.asciz \\\"{name}\\\"\\n.asciz \\\"\\\"\\n994: .balign 4\\n.popsection\\n"
        )
    };
    let code = format!(
        "int f(int x) {{ __asm__ volatile(\"990: movl $0x90909090,%%eax\\nnop\\n{}{}\" ::: \"eax\"); return x; }}",
        note("inner", "990b+1"),
        note("good", "990b+5")
    );
    let options = |patterns: &[&str]| PlanOptions {
        include: patterns.iter().map(|pattern| pattern.parse().unwrap()).collect(),
        ..PlanOptions::default()
    };
    let Some(library) = planned("c", &code, &options(&["app:*"])) else { return };
    let names: Vec<&str> = library.regions.iter().map(|planned| planned.region.name.as_str()).collect();
    assert_eq!(names, ["app:good"]);
    assert_eq!(library.refused, [Refusal { name: "app:inner".to_owned(), reason: Reason::NoNop }]);
    assert!(library.regions[0].marker == Some(0) && library.regions[0].region.exit == ExitPolicy::EntryOnly);
    // The entry of the function would be seen at the nop, which is cheaper.
    let both = planned("c", &code, &options(&["app:good", "f"])).unwrap();
    let [f, place] = ["f", "app:good"].map(|name| find(&both, name));
    assert_eq!((f.entry.file_offset, place.entry.file_offset), (f.region.file_offset, f.region.file_offset + 5));
    assert_eq!((f.region.id, place.region.id), (RegionId(7), RegionId(8)));
    for patterns in [&[][..], &["*"]] {
        let library = planned("c", &code, &options(patterns)).unwrap();
        assert!(library.regions.len() == 1 && library.refused.is_empty(), "{patterns:?}");
    }
}

#[test]
fn ids_count_up_by_offset() {
    let Some(library) = planned("c", PAIR, &PlanOptions::default()) else { return };
    let ids: Vec<u32> = library.regions.iter().map(|planned| planned.region.id.0).collect();
    assert_eq!(ids, [7, 8]);
    assert!(library.regions.is_sorted_by_key(|planned| planned.region.file_offset));
    assert!(library.regions.iter().all(|planned| planned.region.library == LibraryId(3)));
}

#[test]
fn options_choose_the_exit() {
    for policy in ExitPolicy::ALL {
        let Some(library) = planned("c", PAIR, &PlanOptions { exit: policy, ..PlanOptions::default() }) else { return };
        assert_eq!(find(&library, "f").region.exit, policy);
    }
    assert_eq!(PlanOptions::default().exit, ExitPolicy::ReturnSite);
}

#[test]
fn where_a_program_begins_nothing_is_probed() {
    let code = "void begin(void) { for (;;) ; } int f(int x) { return x + 1; }";
    let Some(image) = compile("c", code, &["-nostdlib", "-Wl,-e,begin", "-Wl,-export-dynamic"]) else { return };
    let library = plan(&[source(image)], &PlanOptions::default(), RegionId(0)).libraries.remove(0);
    assert_eq!(library.regions.len(), 1);
    assert!(library.refused[0].name == "begin" && library.refused[0].reason == Reason::NotCalled);
}

#[test]
fn patterns_select() {
    let options = PlanOptions {
        include: vec!["*".parse().unwrap()],
        exclude: vec!["f".parse().unwrap()],
        ..PlanOptions::default()
    };
    let Some(library) = planned("c", PAIR, &options) else { return };
    assert_eq!(library.regions.len(), 1);
    find(&library, "g");
}

#[test]
fn what_is_known_to_be_small_is_left_out() {
    let code = "int tiny(int x) { return x + 1; } \
        int large(int x) { for (int i = 0; i < x; i++) x ^= i * (x / 7 + 3) - (x << 2); return x; } \
        __asm__(\".globl bare\\n.type bare, @function\\nbare: lea 1(%rdi), %eax\\n ret\");";
    let options = PlanOptions { min_size: 16, ..PlanOptions::default() };
    let Some(library) = planned("c", code, &options) else { return };
    let names: Vec<&str> = library.regions.iter().map(|planned| planned.region.name.as_str()).collect();
    assert!(names.contains(&"large") && !names.contains(&"tiny"), "{names:?}");
    // The symbol of `bare` states no size.
    let all = planned("c", code, &PlanOptions::default()).unwrap();
    let is_planned = |library: &PlannedLibrary| library.regions.iter().any(|planned| planned.region.name == "bare");
    assert_eq!(is_planned(&library), is_planned(&all));
}

#[test]
fn an_ifunc_is_planned_where_its_implementation_is() {
    let code = "static int real(int x) { return x + 2; } static void *pick(void) { return real; } \
        int f(int) __attribute__((ifunc(\"pick\"))); int g(int x) { return x + 1; }";
    let Some(image) = compile("c", code, &["-shared", "-fPIC"]) else { return };
    let mut source = source(image);
    let function = source.exports.functions.iter().position(|function| function.ifunc).unwrap();
    let g = source.exports.functions.iter().find(|function| function.name == "g").unwrap().clone();
    let unresolved = plan(&[], &PlanOptions::default(), RegionId(0));
    assert!(unresolved.libraries.is_empty());
    source.ifuncs = vec![ifunc::Resolved { function, address: g.address, size: g.size }];
    let library = plan(&[source], &PlanOptions::default(), RegionId(0)).libraries.remove(0);
    assert_eq!(library.regions.len(), 1);
    assert_eq!(library.regions[0].region.symbols.len(), 2);
    assert_eq!(library.regions[0].region.file_offset, g.file_offset);
}

#[test]
fn an_ifunc_without_implementation_is_refused() {
    let code = "static int real(int x) { return x + 2; } static void *pick(void) { return real; } \
        int f(int) __attribute__((ifunc(\"pick\")));";
    let Some(library) = planned("c", code, &PlanOptions::default()) else { return };
    assert!(library.regions.is_empty());
    assert_eq!(library.refused[0].reason, Reason::Ifunc);
}

#[test]
fn a_nop_that_becomes_a_call_is_refused() {
    let code = "__asm__(\".globl f\\n.type f,@function\\nf: .byte 0x0f,0x1f,0x44,0,0\\nud2\\n.size f,.-f\");";
    let Some(library) = planned("c", code, &PlanOptions::default()) else { return };
    assert_eq!((library.regions.len(), library.refused.len()), (0, 1));
}

#[test]
fn a_region_begins_at_its_function_wherever_its_site_is() {
    let code =
        "__asm__(\".globl f\\n.type f,@function\\nf: test %edi,%edi\\npush %rbx\\npop %rbx\\nret\\n.size f,.-f\");";
    let Some(library) = planned("c", code, &PlanOptions::default()) else { return };
    let planned = find(&library, "f");
    let registers = Registers::default();
    let file_offset = planned.region.file_offset + 2;
    assert_eq!(planned.entry, EntrySite { file_offset, cost: SiteCost::Emulated, words: 0, registers });
}

/// What functions may end in, as a compiler makes their jumps.
#[test]
fn tails_are_found_in_compiled_code() {
    let code = "#define HIDDEN __attribute__((visibility(\"hidden\"), noinline))\n
        #define PROTECTED __attribute__((visibility(\"protected\"), noinline))\n
        int absent(int); void sink(int); int (*pointer)(int); static int table[9];
        PROTECTED int leaf(int x) { return x * 3 + 1; }
        PROTECTED int other(int x) { return x * 5 + 1; }
        HIDDEN int local(int x) { sink(x); return other(x + 1); }
        int returns(int x) { sink(x); return x; }
        int to_leaf(int x) { sink(x); return leaf(x + 1); }
        int to_local(int x) { sink(x); return local(x + 1); }
        int through_stub(int x) { sink(x); return absent(x + 1); }
        int through_pointer(int x) { sink(x); return pointer(x + 1); }
        int by_table(int x) { switch (x) { case 0: sink(4); return 7; case 1: sink(9); return 1; case 2: sink(2); return 3;
            case 3: sink(11); return 8; case 4: sink(1); return 77; case 5: sink(6); return 5; } sink(x); return leaf(x); }";
    let Some(library) = planned("c", code, &PlanOptions::default()) else { return };
    let to = |name: &str| Tails::To(vec![find(&library, name).region.file_offset]);
    for (name, tails) in [
        ("leaf", Tails::Never),
        ("returns", Tails::Never),
        ("to_leaf", to("leaf")),
        ("to_local", to("other")),
        ("through_stub", Tails::Anywhere),
        ("through_pointer", Tails::Anywhere),
        ("by_table", to("leaf")),
    ] {
        assert_eq!(find(&library, name).tails, tails, "{name}");
    }
    // What is not probed is part of what jumps to it.
    let options = PlanOptions { exclude: vec!["other".parse().unwrap()], ..PlanOptions::default() };
    let library = planned("c", code, &options).unwrap();
    assert_eq!(find(&library, "to_local").tails, Tails::Never);
}

/// Cold fragments and exception handlers.
#[test]
fn tails_of_fragments_are_those_of_their_function() {
    let code = "extern \"C\" {
        int callee(int); void sink(int); __attribute__((visibility(\"protected\"), noinline)) int leaf(int x) { return x * 3; }
        int catcher(int x) { try { return callee(x) + 1; } catch (...) { } return leaf(x); }
        int thrower(int x) { if (__builtin_expect(x < 0, 0)) throw x; return x * 2; }
        int keeper(int x) { try { return callee(x) + 1; } catch (...) { return 5; } } }";
    let Some(library) = planned(
        "c++",
        code,
        &PlanOptions { include: vec!["*er".parse().unwrap(), "leaf".parse().unwrap()], ..PlanOptions::default() },
    ) else {
        return;
    };
    assert_eq!(find(&library, "thrower").tails, Tails::Never);
    assert_eq!(find(&library, "keeper").tails, Tails::Never);
    assert_ne!(find(&library, "catcher").tails, Tails::Never);
}

#[test]
fn code_without_a_type_is_planned_where_it_is_called() {
    let code = "__asm__(\".globl called, through_slot, data\\n.protected called\\ncalled: ret\\nthrough_slot: ret\\ndata: .quad 0\\n\");
        extern char data; const void *used = &data;
        int caller(void) { __asm__ volatile (\"call called; call *through_slot@GOTPCREL(%rip)\"); return 1; }";
    let image = compile("c", code, &["-shared", "-fPIC", "-nostdlib"]);
    let Some(image) = image else { return };
    let library = plan(&[source(image)], &PlanOptions::default(), RegionId(0)).libraries.remove(0);
    let mut names: Vec<&str> = library.regions.iter().map(|planned| planned.region.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["called", "caller", "through_slot"]);
    let refused: Vec<_> = library.refused.iter().map(|refusal| refusal.name.as_str()).collect();
    assert_eq!(refused, ["data"]);
    assert_eq!(library.refused[0].reason, Reason::MayBeData);
}

#[test]
fn loops_that_begin_their_functions_need_return_sites() {
    let code =
        "__attribute__((noinline)) void drain(volatile long *p) { while (--*p) ; } long plain(long x) { return x + 1; }
        __asm__(\".globl pops\\n.type pops,@function\\npops: mov 8(%rsp),%rax\\nret $16\\n.size pops,.-pops\");";
    let Some(image) = compile("c", code, &["-shared", "-fPIC", "-fcf-protection=none"]) else { return };
    let image = source(image);
    let with = |exit| {
        let options = PlanOptions { exit, ..PlanOptions::default() };
        plan(std::slice::from_ref(&image), &options, RegionId(0)).libraries.remove(0)
    };
    let library = with(ExitPolicy::ReturnSite);
    let of = |name| (find(&library, name).laps, find(&library, name).returning.pops);
    assert_eq!((of("drain"), of("plain"), of("pops")), ((true, 0), (false, 0), (false, 2)));
    let library = with(ExitPolicy::EntryOnly);
    let refused: Vec<_> = library.refused.iter().map(|refusal| (&*refusal.name, &refusal.reason)).collect();
    assert_eq!(refused, [("drain", &Reason::Laps)]);
    assert_eq!(library.regions.len(), 2);
}
