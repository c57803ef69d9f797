//! What is known of functions by their names alone: the table is `known.txt`; to teach rtrace another function, add its
//! name there.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What is known about one thing.
#[derive(Default)]
struct KnownFacts {
    by_name: HashMap<&'static str, &'static str>,
    by_prefix: Vec<(&'static str, &'static str)>,
}

static TABLE: LazyLock<HashMap<&str, KnownFacts>> = LazyLock::new(|| {
    let mut table: HashMap<&str, KnownFacts> = HashMap::new();
    let lines = include_str!("known.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut about, mut fact) = ("", "");
    for line in lines {
        if let Some(head) = line.strip_prefix('[') {
            (about, fact) = head.trim_end_matches(']').split_once(' ').unwrap_or_default();
            continue;
        }
        let facts = table.entry(about).or_default();
        for name in line.split_whitespace() {
            match name.strip_suffix('*') {
                Some(prefix) => facts.by_prefix.push((prefix, fact)),
                None => _ = facts.by_name.insert(name, fact),
            }
        }
    }
    table
});

/// What the table says about functions of this name, if it has it. MPI's have the names of C there.
pub fn known(about: &str, name: &str) -> Option<&'static str> {
    let facts = TABLE.get(about)?;
    let of_mpi = mpi_in_c(name);
    let name = of_mpi.as_deref().unwrap_or(name);
    let by_prefix = || facts.by_prefix.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|&(_, fact)| fact);
    facts.by_name.get(name).copied().or_else(by_prefix)
}

/// The name that a function of MPI has in C: that of its profiling interface and those of Fortran lead to it.
fn mpi_in_c(name: &str) -> Option<String> {
    let of_c = name.strip_prefix('P').unwrap_or(name);
    if of_c.starts_with("MPI_") {
        // Those for counts of 64 bits wait for the same.
        return Some(of_c.strip_suffix("_c").unwrap_or(of_c).to_owned());
    }
    let of_fortran = name.strip_prefix("mpi_").or_else(|| name.strip_prefix("pmpi_"))?.trim_end_matches('_');
    let of_fortran = of_fortran.strip_suffix("_f08").unwrap_or(of_fortran);
    let first = of_fortran.chars().next()?.to_ascii_uppercase();
    Some(format!("MPI_{first}{}", &of_fortran[first.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Wait;

    #[test]
    fn each_name_stands_once_and_can_be_met() {
        let (mut about, mut fact) = ("", "");
        let mut met = HashSet::new();
        for line in include_str!("known.txt").lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix('[').and_then(|head| head.strip_suffix(']')?.split_once(' ')) {
                Some(head) => (about, fact) = head,
                None => line.split_whitespace().for_each(|name| {
                    assert!(met.insert((about, name)), "{name} stands twice");
                    assert_eq!(known(about, name.trim_end_matches('*')), Some(fact), "{name}");
                }),
            }
        }
        assert_eq!(TABLE.len(), 5);
        let of_waits = |facts: &KnownFacts| {
            facts
                .by_name
                .values()
                .chain(facts.by_prefix.iter().map(|(_, fact)| fact))
                .all(|fact| Wait::from_name(fact).is_some())
        };
        assert!(of_waits(&TABLE["waits"]));
        assert_eq!(known("nothing", "read"), None);
    }
}
