//! Trees of calls in the notation of `targets/harness.h`, in a form where equal trees are equal text.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use rtrace_model::Ending;

/// Calls in the order of their begins; equal calls that follow each other are one [`Node`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest(Vec<Node>);

/// One call, or several equal ones in a row, with everything called from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub ending: Ending,
    pub count: u64,
    pub calls: Forest,
}

impl Forest {
    pub fn push(&mut self, node: Node) {
        match self.0.last_mut() {
            Some(last) if last.name == node.name && last.ending == node.ending && last.calls == node.calls => {
                last.count += node.count;
            }
            _ => self.0.push(node),
        }
    }

    pub fn append(&mut self, other: Forest) {
        other.0.into_iter().for_each(|node| self.push(node));
    }

    /// Reads the notation.
    pub fn parse(text: &str) -> Forest {
        let mut rest = text.chars().peekable();
        let forest = parse_calls(&mut rest);
        assert_eq!(rest.next(), None, "`{text}` ends too late");
        forest
    }

    /// Whether it has no calls.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same calls, those of a function with other endings.
    pub fn with_endings(&self, ending: &impl Fn(&Node) -> Ending) -> Forest {
        let changed = |node: &Node| Node {
            name: node.name.clone(),
            ending: ending(node),
            count: node.count,
            calls: node.calls.with_endings(ending),
        };
        self.0.iter().map(changed).collect()
    }

    /// The same calls, those that went unseen with the endings that are `told`: how the first calls from a
    /// place end is not known before that place is. None where these are not the same calls.
    pub fn with_unseen_as(&self, told: &Forest) -> Option<Forest> {
        let mut told = told.0.iter().flat_map(|node| std::iter::repeat_n(node, node.count as usize));
        let mut forest = Forest::default();
        for node in &self.0 {
            for _ in 0..node.count {
                let other = told.next().filter(|other| other.name == node.name)?;
                let ending = if node.ending == Ending::Unseen { other.ending } else { node.ending };
                let calls = node.calls.with_unseen_as(&other.calls)?;
                forest.push(Node { name: node.name.clone(), ending, count: 1, calls });
            }
        }
        told.next().is_none().then_some(forest)
    }

    /// Whether of each function there are at most as many calls as in `told`.
    pub fn is_part_of(&self, told: &Forest) -> bool {
        let told = told.counts();
        self.counts().iter().all(|(name, count)| told.get(name).is_some_and(|told| count <= told))
    }

    /// Calls of each function by ending, in the order of `Ending::ALL`.
    pub fn endings(&self) -> Paths {
        let mut endings = Paths::new();
        for (path, calls) in self.paths() {
            let name = path.rsplit('/').next().expect("a path has a last name").to_owned();
            let sums = endings.entry(name).or_default();
            sums.iter_mut().zip(calls).for_each(|(sum, calls)| *sum += calls);
        }
        endings
    }

    /// Calls of each function.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        self.add_counts(1, &mut counts);
        counts
    }

    fn add_counts(&self, times: u64, counts: &mut BTreeMap<String, u64>) {
        for node in &self.0 {
            *counts.entry(node.name.clone()).or_default() += node.count * times;
            node.calls.add_counts(node.count * times, counts);
        }
    }
}

/// Calls by ending, in the order of `Ending::ALL`, of each call path: the names from a root, parted
/// by slashes.
pub type Paths = BTreeMap<String, [u64; 4]>;

impl Forest {
    /// Its calls, folded by call path.
    pub fn paths(&self) -> Paths {
        let mut paths = Paths::new();
        self.add_paths("", 1, &mut paths);
        paths
    }

    fn add_paths(&self, callers: &str, times: u64, paths: &mut Paths) {
        for node in &self.0 {
            let path = format!("{callers}/{}", node.name);
            let count = node.count * times;
            paths.entry(path.clone()).or_default()[node.ending as usize] += count;
            node.calls.add_paths(&path, count, paths);
        }
    }
}

impl FromIterator<Node> for Forest {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Forest {
        let mut forest = Forest::default();
        nodes.into_iter().for_each(|node| forest.push(node));
        forest
    }
}

fn parse_calls(rest: &mut Peekable<Chars<'_>>) -> Forest {
    let mut forest = Forest::default();
    while rest.peek().is_some_and(|&c| c != ')') {
        forest.push(parse_node(rest));
        rest.next_if_eq(&' ');
    }
    forest
}

fn parse_node(rest: &mut Peekable<Chars<'_>>) -> Node {
    let name = take_while(rest, |c| !"!~?*() ".contains(c));
    assert!(!name.is_empty(), "a call without a name");
    let ending = [Ending::Unwound, Ending::Open, Ending::Unseen]
        .into_iter()
        .find(|&ending| rest.next_if(|&c| mark(ending) == Some(c)).is_some())
        .unwrap_or(Ending::Returned);
    let count = match rest.next_if_eq(&'*') {
        Some(_) => take_while(rest, |c| c.is_ascii_digit()).parse().expect("a count"),
        None => 1,
    };
    let mut calls = Forest::default();
    if rest.next_if_eq(&'(').is_some() {
        calls = parse_calls(rest);
        assert_eq!(rest.next(), Some(')'), "the calls of `{name}` do not end");
    }
    Node { name, ending, count, calls }
}

fn take_while(rest: &mut Peekable<Chars<'_>>, wanted: impl Fn(char) -> bool) -> String {
    std::iter::from_fn(|| rest.next_if(|&c| wanted(c))).collect()
}

fn mark(ending: Ending) -> Option<char> {
    match ending {
        Ending::Returned => None,
        Ending::Unwound => Some('!'),
        Ending::Open => Some('~'),
        Ending::Unseen => Some('?'),
    }
}

impl fmt::Display for Forest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            let gap = if index > 0 { " " } else { "" };
            write!(f, "{gap}{node}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(mark) = mark(self.ending) {
            write!(f, "{mark}")?;
        }
        if self.count > 1 {
            write!(f, "*{}", self.count)?;
        }
        if !self.calls.0.is_empty() {
            write!(f, "({})", self.calls)?;
        }
        Ok(())
    }
}

#[test]
fn notation_reads_back() {
    for text in ["", "a", "a*3(b(c*2) c)", "visit!(visit!(leaf)) leaf", "a~(b?*2)", "exp@V1*5 exp@V2*7"] {
        assert_eq!(Forest::parse(text).to_string(), text);
    }
}

#[test]
fn equal_neighbours_are_one() {
    assert_eq!(Forest::parse("a(b b*2) a(b*3) a! a!").to_string(), "a*2(b*3) a!*2");
    assert_ne!(Forest::parse("a(b) a"), Forest::parse("a a(b)"));
}

#[test]
fn paths_sum_up_calls_by_ending() {
    let paths = Forest::parse("a*2(b*3 b!) b~ a(b)").paths();
    let expected = [("/a", [3, 0, 0, 0]), ("/a/b", [7, 2, 0, 0]), ("/b", [0, 0, 1, 0])];
    assert_eq!(paths, expected.map(|(path, calls)| (path.to_owned(), calls)).into());
}

#[test]
fn counts_multiply_down_the_tree() {
    let counts = Forest::parse("outer*3(middle(leaf*2) leaf) leaf").counts();
    assert_eq!(Vec::from_iter(counts), [("leaf".into(), 10), ("middle".into(), 3), ("outer".into(), 3)]);
}
