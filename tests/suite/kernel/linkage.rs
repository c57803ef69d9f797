//! Names, ways of linking, and libraries that come and go.

use crate::common::scenario::Scenario;
use crate::common::target::Flavour;

#[test]
fn aliases_are_one_region_with_all_names() {
    let Some(recording) = Scenario::new("names", "aliases").run() else { return };
    let symbols = |name: &str| {
        let region = recording.regions().iter().find(|region| region.name == name).expect("the region is there");
        region.symbols.iter().map(|symbol| symbol.symbol.clone()).collect::<Vec<_>>()
    };
    assert_eq!(symbols("work"), ["work", "work_alias"]);
}

#[test]
fn versions_of_one_name_are_two_regions() {
    Scenario::new("names", "versions").run();
}

#[test]
fn code_without_a_type_is_traced_where_the_program_calls_it() {
    let Some(recording) = Scenario::new("names", "untyped").run() else { return };
    assert!(recording.regions().iter().any(|region| region.name == "untyped"));
    assert!(recording.regions().iter().all(|region| region.name != "untyped_table"));
}

#[test]
fn an_ifunc_is_the_function_that_was_chosen() {
    Scenario::new("names", "ifunc").attach();
}

#[test]
fn stripped_library() {
    Scenario::new("shapes", "nested").flavour(Flavour::Stripped).run();
}

#[test]
fn files_without_section_headers() {
    for (program, scenario) in
        [("shapes", "nested"), ("names", "versions"), ("exceptions", "destructors"), ("jumps", "long_jumps")]
    {
        Scenario::new(program, scenario).flavour(Flavour::Sectionless).run();
    }
}

#[test]
fn static_program() {
    Scenario::new("shapes", "nested").flavour(Flavour::Static).run();
}

#[test]
fn functions_of_a_stripped_program() {
    Scenario::new("shapes", "branches").flavour(Flavour::Exporting).run();
}

#[test]
fn library_loaded_again_and_again() {
    Scenario::new("loading", "reopen").run();
}
