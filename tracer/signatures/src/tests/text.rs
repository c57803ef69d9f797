//! What people write, right and wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use super::libraries::{build, known};
use crate::prototype::{self, Types};
use crate::{Book, Error, Lookup, Request, Type, expression};

fn types() -> Types {
    prototype::known_types()
}

fn wrong(c: &str) -> String {
    prototype::parse(c, &types()).unwrap_err()
}

#[test]
fn prototypes_are_read() {
    let read = |c: &str| prototype::parse(c, &types()).unwrap();
    let text = |c: &str| {
        let prototype = read(c);
        let params: Vec<String> = prototype.params.iter().map(|param| param.ctype.to_string()).collect();
        format!(
            "{} {}({}){}",
            prototype.result,
            prototype.name,
            params.join(", "),
            if prototype.variadic { "..." } else { "" }
        )
    };
    assert_eq!(text("ssize_t read(int fd, void *buf, size_t count)"), "int64_t read(int32_t, void *, uint64_t)");
    assert_eq!(text("void (*signal(int sig, void (*func)(int)))(int);"), "function * signal(int32_t, function *)");
    assert_eq!(text("unsigned long long f(void)"), "uint64_t f()");
    assert_eq!(text("int main(int argc, char *argv[])"), "int32_t main(int32_t, char **)");
    assert_eq!(text("int printf(const char *restrict format, ...)"), "int32_t printf(char *)...");
    assert_eq!(
        text("long unsigned int f(short, signed char, long double, char unsigned)"),
        "uint64_t f(int16_t, int8_t, long double, uint8_t)"
    );
    assert_eq!(
        text("int f(int (*p)[4], int a[3][4], float _Complex z)"),
        "int32_t f(int32_t[4] *, int32_t[4] *, float _Complex)"
    );
    assert_eq!(text("enum colour f(struct point *const p)"), "enum colour f(struct point *)");
    assert_eq!(read("int f(const void *buf, char *names[8])").params[1].c_type, "char *[8]");
    assert_eq!(read("int f(const void *buf, char *names[8])").params[0].c_type, "const void *");
    let Type::Struct(structure) =
        prototype::parse_type("struct { char a; long b[2]; union { short c; double d; } e; int f, *g; }", &types())
            .unwrap()
    else {
        panic!();
    };
    let offsets: Vec<u64> = structure.fields.iter().map(|field| field.offset).collect();
    assert_eq!((offsets, structure.bytes), (vec![0, 8, 24, 32, 40], Some(48)));
}

#[test]
fn wrong_prototypes_are_told() {
    assert_eq!(wrong("int f(int a"), "`,` or `)` expected at the end of `int f(int a`");
    assert_eq!(wrong("int f()"), "`()` does not say which parameters `f` has: write `(void)` for none");
    assert_eq!(wrong("int f"), "`f` is no function in `int f`: `(` expected behind it");
    assert_eq!(wrong("int f(int a, int a)"), "two parameters are called `a` in `int f(int a, int a)`");
    assert_eq!(wrong("int f(long float a)"), "`long float` is no type");
    assert_eq!(wrong("int f(void a)"), "a parameter of `f` is `void`");
    assert_eq!(wrong("(int)"), "a type expected, not `(`, in `(int)`");
    assert_eq!(wrong("int f(int a) { }"), "the end expected, not `{`, in `int f(int a) { }`");
    assert_eq!(wrong("int (*f)(int)"), "`f` is no function in `int (*f)(int)`: `(` expected behind it");
    assert_eq!(wrong(""), "a type expected at the end of ``");
    let deep = format!("int f({}int x{})", "int (*a)(".repeat(100), ")".repeat(100));
    assert_eq!(wrong(&deep), "nested too deeply");
    assert!(wrong(&format!("int {}f(int)", "*".repeat(100_000))).starts_with("longer than"));
}

#[test]
fn structures_do_not_grow_without_bound() {
    let mut known = types();
    let mut name = "long".to_owned();
    let grown = (0..10).find_map(|number| {
        let body = format!("struct {{ {name} a, b, c, d, e, f, g, h; }}");
        name = format!("t{number}");
        match prototype::parse_type(&body, &known) {
            Ok(ctype) => {
                known.insert(name.clone(), ctype);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert_eq!(grown.unwrap(), "a structure of more than 4096 members");
}

#[test]
fn expressions_are_computed_in_order() {
    let program_of = |name: &str| match name {
        "n" => Ok(vec![crate::Op::number(1)]),
        other => Err(format!("no `{other}`")),
    };
    let length = |text: &str| expression::parse(text, &types(), &program_of).map(|program| program.len());
    assert_eq!(length("2 * n * (n + 1) - max(n, 0)"), Ok(11));
    assert_eq!(length("n * sizeof(long double)"), Ok(3));
    assert_eq!(length("n * m"), Err("no `m`".to_owned()));
    assert_eq!(length("n *"), Err("a value before this place expected at the end of `n *`".to_owned()));
    assert!(length(&"(".repeat(1000)).is_err());
    assert!(expression::condition("result < 0").is_ok() && expression::condition("result == NULL").is_ok());
    assert!(expression::condition("result").is_err() && expression::condition("result < a").is_err());
}

/// The message about a table of the user's, without the path of its folder.
fn message(table: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, table).unwrap();
    let source = "struct s { int a; }; int f(int a, struct s *p, const char *t) { return a; } void g(long x) {}";
    let library = build(folder.path(), "gcc", "f.c", source, &["-g", "-shared", "-fPIC"]);
    let request = Request { file: Some(path), ..Request::default() };
    let result = known(&library, &[], &request, &["f", "g"]);
    let text = result.map_or_else(|error| error.to_string(), |_| "no error".to_owned());
    text.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn wrong_tables_are_told_with_file_and_line() {
    let function = |rest: &str| message(&format!("# a table\n\n[[function]]\n{rest}"));
    let start = "failed to understand `mine.toml:";
    let starts = |text: String, line: usize, rest: &str| {
        assert!(text.starts_with(&format!("{start}{line}`: ")) && text.contains(rest), "{text}");
    };
    starts(function("c = \"int f(int a\""), 3, "`,` or `)` expected");
    starts(function("c = \"int f(foo_t a)\""), 3, "the type `foo_t` is not known: say under [types] what it is");
    starts(function("c = 3"), 4, "invalid type: integer `3`");
    starts(function("c = \"int f(int a)\"\nflops = \"a\""), 5, "unknown field `flops`");
    starts(function("capture = [\"a\"]"), 3, "a function needs either `c`, its prototype, or `name`");
    starts(function("name = \"f\"\ncapture = [\n\"a\",\n\"b->\",\n]"), 7, "the name of a member expected");
    starts(function("name = \"f\"\ncapture = [\"b\"]"), 3, "`f` has no parameter `b`: it has a, p, t");
    starts(function("name = \"f\"\ncapture = [\"p->b\"]"), 3, "nothing is known of a member `b` behind `p`");
    starts(function("name = \"f\"\ncapture = [\"t[..a][0]\"]"), 5, "`*` expected");
    starts(function("name = \"f\"\ncapture = [\"p[t[a]]\"]"), 5, "a number expected");
    starts(function("name = \"f\"\ncapture = [\"t[..a][*a]\"]"), 3, "`a` does not point to a number");
    starts(function("name = \"f\"\nroles = { pear = \"a\" }"), 5, "there is no role `pear`");
    starts(
        function("name = \"f\"\nroles = { peer = \"b\" }"),
        3,
        "the role `peer` is that of `b`, which is not captured",
    );
    starts(function("name = \"f\"\nroles = { event = \"sent\" }"), 5, "there is no event `sent`");
    starts(function("name = \"f\"\nerrno = \"result\""), 5, "a comparison such as `result < 0` expected");
    starts(function("name = \"f\"\nmetrics = { x_bytes = \"a * b\" }"), 3, "`f` has no parameter `b`");
    starts(function("name = \"f\"\nfamily = \"all\""), 5, "there is no [family.all]");
    starts(function("name = \"f\"\n[[function]]\nname = \"f\""), 5, "`f` is there already, in line 3");
    starts(function("name = \"f\"\n[[function"), 5, "");
    starts(message("[types]\na = \"int\"\nb = \"struct { c d; }\""), 3, "the size of the member `d` is not known");
    // What the library's debug information says is what the processor does.
    starts(
        function("c = \"int f(int a)\""),
        3,
        "but `int32_t (int, struct s *, const char *)` by debug information in f.so",
    );
    starts(function("c = \"void g(double x)\""), 3, "`g` is `void (double)` there, but `void (long int)`");
    starts(
        function("c = \"long f(int a, void *p, void *t)\"\ncapture = [\"a\", \"x=a\", \"X=a\"]"),
        3,
        "two columns are called `X`",
    );
    assert_eq!(function("c = \"int f(int a, void *p, void *t)\""), "no error");
    assert_eq!(function("name = \"f\"\ncapture = [\"p->a\", \"t:text\"]"), "no error");
    let missing = Request { file: Some("/nowhere/a.toml".into()), ..Request::default() };
    let error = Book::open(&missing).unwrap_err().to_string();
    assert!(error.starts_with("failed to read `/nowhere/a.toml`: No such file"), "{error}");
}

#[test]
fn wrong_selections_are_told() {
    let error = |selection: &str| {
        let request = Request { selection: selection.to_owned(), ..Request::default() };
        Book::open(&request).map_or_else(|error| error.to_string(), |_| "no error".to_owned())
    };
    assert_eq!(error("read(count) -> result, errno; open(path:text); raw; MPI_*"), "no error");
    assert_eq!(
        error("read(count -> x"),
        "failed to understand `--args read(count -> x`: `,` expected at the end of `(count -> x`"
    );
    assert!(error("read(count:u7)").contains("`u7` is no type of a value"));
    assert!(error("(count)").contains("the name of a function expected"));
    assert!(error("read(count) result").contains("the end expected, not `result`"));
    assert!(error("read[(count)").contains("is no glob"));
}

#[test]
fn selections_choose_functions_and_columns() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int f(int a, int b) { return a; } int g(int a) { return a; }";
    let library = build(folder.path(), "gcc", "f.c", source, &["-g", "-shared", "-fPIC"]);
    let ask = |selection: &str| {
        let request = Request { selection: selection.to_owned(), ..Request::default() };
        let known = known(Path::new(&library), &[], &request, &["f", "g"])?;
        let columns = |known: &Lookup| match known {
            Lookup::Signature(signature, _) => {
                signature.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        };
        Ok::<_, Error>(known.iter().map(columns).collect::<Vec<_>>())
    };
    assert_eq!(ask("").unwrap(), ["a b result", "a result"]);
    assert_eq!(ask("f").unwrap(), ["a b result", "Unasked"]);
    assert_eq!(ask("f(b)").unwrap(), ["b", "Unasked"]);
    assert_eq!(ask("f(second=b) -> result; ?").unwrap(), ["second result", "a result"]);
    assert_eq!(ask("g() -> errno").unwrap(), ["Unasked", "errno"]);
    let error = ask("f(c)").unwrap_err().to_string();
    assert!(error.starts_with("failed to understand `--args f`: `f` has no parameter `c`: it has a, b"), "{error}");
    let book = Book::open(&Request { selection: "f; h*(a)".to_owned(), ..Request::default() }).unwrap();
    assert_eq!(book.unmatched(&["f", "g"]), ["h*"]);
}
