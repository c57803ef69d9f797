//! Arguments in vector registers, which stubs store, compared with what programs print of themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use rtrace_model::{EventKind, Values};

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::compile_texts;

/// Functions of the library, and calls of each.
const FUNCTIONS: usize = 40;
const CALLS: usize = 20;
/// The last call of each function is by a pointer that `dlsym` gave, which leads past the stub.
const POINTED: usize = CALLS - 1;

/// Types of parameters, with the names behind `aN` of their values.
const TYPES: [(&str, &[&str]); 6] = [
    ("double", &[""]),
    ("float", &[""]),
    ("long", &[""]),
    ("struct two", &["x", "y"]),
    ("struct mixed", &["d", "n"]),
    ("struct large", &["p", "q", "r"]),
];

const STRUCTURES: &str = "struct two { float x, y; };\nstruct mixed { double d; long n; };\n\
                          struct large { double p, q, r; };\n";

/// The parameters of a function, as places among the types: one after the other, so that all of them meet.
fn params(number: usize) -> Vec<usize> {
    (0..number % 8 + 1).map(|place| (number * 7 + place * (number % 5 + 1)) % TYPES.len()).collect()
}

fn declaration(number: usize) -> String {
    let params = params(number).into_iter().enumerate().map(|(place, kind)| format!("{} a{place}", TYPES[kind].0));
    format!("double function{number}({})", params.collect::<Vec<_>>().join(", "))
}

/// The values of a function's parameters: their columns, and how C reaches them.
fn values(number: usize) -> Vec<(String, String)> {
    let of = |(place, kind): (usize, usize)| {
        TYPES[kind].1.iter().map(move |&part| match part {
            "" => (format!("a{place}"), format!("a{place}")),
            part => (format!("a{place}_{part}"), format!("a{place}.{part}")),
        })
    };
    params(number).into_iter().enumerate().flat_map(of).collect()
}

/// A library whose functions use their arguments late, behind calls, so that compilers move them elsewhere.
fn library() -> String {
    let mut text = format!(
        "{STRUCTURES}volatile double sink;\n\
         __attribute__((noinline)) static double mix(double n) {{ return sink = sink * 0.5 + n; }}\n"
    );
    for number in 0..FUNCTIONS {
        writeln!(text, "{}\n{{\n    double sum = {number};", declaration(number)).unwrap();
        for (place, (_, value)) in values(number).iter().enumerate() {
            match (place + number) % 3 {
                0 => writeln!(text, "    sum += mix({value});").unwrap(),
                _ => writeln!(text, "    sum = sum * 3 + {value};").unwrap(),
            }
        }
        text.push_str("    return sum;\n}\n");
    }
    text
}

/// A program that calls them, and prints their arguments.
fn program() -> String {
    let mut text = format!("#include <dlfcn.h>\n#include <stdio.h>\n{STRUCTURES}");
    (0..FUNCTIONS).for_each(|number| writeln!(text, "{};", declaration(number)).unwrap());
    text.push_str(
        "static unsigned state = 1;\nstatic double next(void) { state = state * 1664525u + 1013904223u; \
         return (int)state / 1024.0; }\nint main(void)\n{\n",
    );
    for number in 0..FUNCTIONS {
        writeln!(text, "    for (int i = 0; i < {CALLS}; i++) {{").unwrap();
        let params = params(number);
        for (place, &kind) in params.iter().enumerate() {
            writeln!(text, "        {} a{place};", TYPES[kind].0).unwrap();
        }
        let values = values(number);
        values.iter().for_each(|(_, value)| writeln!(text, "        {value} = next();").unwrap());
        let arguments = (0..params.len()).map(|place| format!("a{place}")).collect::<Vec<_>>().join(", ");
        let pointer = declaration(number).replace(&format!("function{number}"), "(*pointer)");
        writeln!(text, "        {pointer} = i == {POINTED} ? dlsym(RTLD_DEFAULT, \"function{number}\") : 0;").unwrap();
        writeln!(text, "        if (pointer) pointer({arguments}); else function{number}({arguments});").unwrap();
        writeln!(text, "        printf(\"{number}\");").unwrap();
        for (column, value) in values {
            writeln!(text, "        printf(\" {column}=%.17g\", (double)({value}));").unwrap();
        }
        text.push_str("        puts(\"\");\n    }\n");
    }
    text + "    return 0;\n}\n"
}

/// The values of each call of a function by name, in the order of the calls.
fn rows(recording: &Recording, name: &str) -> Vec<BTreeMap<String, Option<f64>>> {
    let region = recording.regions().iter().find(|region| region.name == name).expect("it is traced").id;
    let names = recording.value_columns(region);
    let mut rows = BTreeMap::new();
    for batch in recording.values(region) {
        for (row, call) in batch.calls.iter().enumerate() {
            let values = names.iter().zip(&batch.columns).map(|(name, values)| match values {
                Values::Integer(values) => (name.clone(), values[row].map(|value| value as f64)),
                Values::Float(values) => (name.clone(), values[row]),
                Values::Text(_) => panic!("{name} is text"),
            });
            rows.insert(*call, values.collect());
        }
    }
    rows.into_values().collect()
}

fn record(flag: &str, option: Option<&str>) -> (String, Recording) {
    let library: (&str, _, &[&str]) = (&library(), "libfloats.so", &["-shared", "-fPIC", "-g", flag]);
    let folder = compile_texts(&[library, (&program(), "program", &["-O1"])]);
    let options = ["--lib", "libfloats.so", "--func", "function*", "--args"].into_iter().chain(option);
    let options: Vec<String> = options.map(str::to_owned).collect();
    let (output, recording) = rtrace::run(&options, &Command::new(folder.join("program")));
    (String::from_utf8(output.stdout).unwrap(), recording)
}

/// What the program says of each call: the function's number, and its values by column.
fn told(printed: &str) -> Vec<(usize, BTreeMap<String, f64>)> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let number = words.next().unwrap().parse().unwrap();
        let value = |word: &str| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        (number, words.map(value).collect())
    };
    printed.lines().map(line).collect()
}

/// Whether a value of a parameter is in a vector register: there is room in these for the first eight eightbytes, and a
/// structure goes there as a whole, or lies on the stack.
fn in_vector(number: usize) -> BTreeMap<String, bool> {
    let (mut vectors, mut words) = (0, 0);
    let mut found = BTreeMap::new();
    for (place, kind) in params(number).into_iter().enumerate() {
        let (classes, parts): ([usize; 2], &[bool]) = match kind {
            0 | 1 => ([1, 0], &[true]),
            2 => ([0, 1], &[false]),
            3 => ([1, 0], &[true, true]),
            4 => ([1, 1], &[true, false]),
            _ => ([0, 0], &[false, false, false]),
        };
        let fits = vectors + classes[0] <= 8 && words + classes[1] <= 6;
        if fits {
            vectors += classes[0];
            words += classes[1];
        }
        for (part, &is_vector) in TYPES[kind].1.iter().zip(parts) {
            let name = if part.is_empty() { format!("a{place}") } else { format!("a{place}_{part}") };
            found.insert(name, is_vector && fits);
        }
    }
    found
}

#[test]
fn stubs_tell_what_is_in_vector_registers() {
    let Some(_turn) = Turn::take() else { return };
    for flags in ["-O2", "-O0", "-O3"] {
        let (printed, recording) = record(flags, Some("--stubs"));
        let told = told(&printed);
        assert_eq!(told.len(), FUNCTIONS * CALLS);
        let without: Vec<&str> = recording.events().iter().filter_map(no_values).collect();
        // Those whose first instruction refers to data next to it.
        assert!(without.len() * 4 < FUNCTIONS, "{without:?} {flags}");
        for number in 0..FUNCTIONS {
            let name = format!("function{number}");
            let told = told.iter().filter(|(of, _)| *of == number);
            let rows = rows(&recording, &name);
            assert_eq!(rows.len(), CALLS, "{name} {flags}");
            let in_vector = in_vector(number);
            for (call, (row, (_, told))) in rows.iter().zip(told).enumerate() {
                assert!(row.keys().all(|name| told.contains_key(name)), "{name}: {row:?}");
                for (column, value) in row {
                    // What is in another register, or on the stack, is known of each call.
                    let is_vector = in_vector[column];
                    let is_known = !is_vector || call != POINTED && !without.contains(&name.as_str());
                    assert_eq!(
                        value.map(f64::to_bits),
                        is_known.then(|| told[column].to_bits()),
                        "{column} of {name}, call {call}, {flags}: {told:?}"
                    );
                }
            }
        }
    }
}

/// The function of which some values cannot be read.
fn no_values(event: &EventKind) -> Option<&str> {
    match event {
        EventKind::NoValues { region, .. } => Some(region),
        _ => None,
    }
}

#[test]
fn without_stubs_they_are_no_columns() {
    let Some(_turn) = Turn::take() else { return };
    let (printed, recording) = record("-O2", None);
    for (number, told) in told(&printed) {
        let region = recording.regions().iter().find(|region| region.name == format!("function{number}")).unwrap().id;
        let in_vector = in_vector(number);
        let readable: Vec<&String> = told.keys().filter(|name| !in_vector[*name]).collect();
        let mut columns = recording.value_columns(region);
        columns.sort_unstable();
        assert_eq!(columns.iter().collect::<Vec<_>>(), readable, "function{number}");
    }
}
