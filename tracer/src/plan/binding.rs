//! Where calls through the dynamic linker end up, as far as that is the same whatever happens.
//!
//! Any library can define a function of a name that another one has, and take its calls over. A
//! name is believed only if among all modules of the programs nobody else defines it, or the C
//! library alone does. A library that is loaded later comes last in the linker's order; it can take
//! over names of those that were loaded with `dlopen`, which is not foreseen here.

use foldhash::{HashMap, HashSet};
use rtrace_symbolizer::Image;

use super::hazards::is_provider;

/// Where a slot leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this function of the library itself, by virtual address.
    Own(u64),
    /// To a function of the C library that comes back, see [`returns`](super::closed::system::returns).
    System,
}

/// The slots of a library of which it is known where they lead, by virtual address; by default none.
#[derive(Clone, Debug, Default)]
pub struct Binding {
    slots: HashMap<u64, Destination>,
}

impl Binding {
    /// For the library `image`, in programs of these modules, given by path.
    pub fn of<'a>(image: &Image, modules: impl Iterator<Item = (&'a str, &'a Image)>) -> Binding {
        let slots = image.slots();
        let names: HashSet<&str> = slots.iter().map(|slot| slot.name).collect();
        let mut definers: HashMap<&str, Definers> = HashMap::default();
        for (path, module) in modules.filter(|(_, module)| !std::ptr::eq(*module, image)) {
            for name in module.defined(&names) {
                definers.entry(name).or_default().add(path);
            }
        }
        let slots = slots.iter().filter_map(|slot| {
            let destination = match (slot.own, definers.get(slot.name)) {
                (Some(own), None) => Destination::Own(own),
                (None, Some(definers)) if definers.return_from(slot.name) => Destination::System,
                _ => return None,
            };
            Some((slot.address, destination))
        });
        Binding { slots: slots.collect() }
    }

    /// Where the slot at this virtual address leads; none where that is not known.
    pub fn destination(&self, slot: u64) -> Option<Destination> {
        self.slots.get(&slot).copied()
    }
}

/// Who defines a name.
#[derive(Default)]
struct Definers {
    mathematics: bool,
    others_of_system: bool,
    foreign: bool,
}

impl Definers {
    fn add(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        match () {
            () if name.starts_with("libm.so") || name.starts_with("libm-2.") => self.mathematics = true,
            () if is_provider(name) => self.others_of_system = true,
            () => self.foreign = true,
        }
    }

    /// Whether all functions of that name do nothing but return.
    fn return_from(&self, name: &str) -> bool {
        // The functions of the mathematics library compute.
        !self.foreign && (super::closed::system::returns(name) || self.mathematics && !self.others_of_system)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::compile;
    use super::*;

    const LIBRARY: &str = "#include <string.h>\n#include <stdlib.h>\n#include <math.h>\nint f(int x) { return x + 1; } \
        int g(int x) { return f(x) + strlen(getenv(\"x\")) + sin(x); } \
        void h(void *p) { qsort(p, 1, 1, (int (*)(const void *, const void *))f); }";
    const SYSTEM: &str = "int strlen(int x) { return x; } int qsort(int x) { return x; }";
    const MATHEMATICS: &str = "int sin(int x) { return x; }";

    fn shared(code: &str) -> Option<Image> {
        compile("c", code, &["-shared", "-fPIC", "-fno-builtin", "-fno-inline"])
    }

    /// The names of which it is known where they lead, with further modules of the program.
    fn known(others: &[(&str, &str)]) -> Option<Vec<String>> {
        let modules = [("/lib/libx.so", LIBRARY), ("/lib/libc.so.6", SYSTEM), ("/lib/libm.so.6", MATHEMATICS)];
        let images: Vec<(&str, Image)> =
            modules.iter().chain(others).map(|&(path, code)| Some((path, shared(code)?))).collect::<Option<_>>()?;
        let image = &images[0].1;
        let binding = Binding::of(image, images.iter().map(|(path, image)| (*path, image)));
        let slots = image.slots();
        let known = slots.iter().filter(|slot| binding.destination(slot.address).is_some());
        let mut names: Vec<String> = known.map(|slot| slot.name.to_owned()).collect();
        names.sort();
        names.dedup();
        Some(names)
    }

    #[test]
    fn names_that_one_module_defines_are_known() {
        let Some(names) = known(&[]) else { return };
        assert_eq!(names, ["f", "sin", "strlen"]);
    }

    #[test]
    fn names_that_another_module_defines_too_are_not() {
        let Some(names) = known(&[("/opt/program", "int f(void) { return 1; } int strlen(int x) { return x; }")])
        else {
            return;
        };
        assert_eq!(names, ["sin"]);
    }
}
