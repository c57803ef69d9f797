//! From the columns of a function to the one program that the kernel side runs for it.
//!
//! Values stand in words; each operation fills some. What two columns have in common, such as the register of a
//! pointer, is fetched once. Operations are sorted by when they run, and a word is written only once in a call, so a
//! value of the enter is still there at the exit.

use crate::{At, Column, DropReason, Dropped, MOST_OPS, MOST_VALUE_WORDS, Metric, Op, Register, Width};

/// All that is fetched of one function's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The operations, those of the enter first: at most [`MOST_OPS`].
    pub fetches: Vec<Fetch>,
    /// The words that they fill: at most [`MOST_VALUE_WORDS`].
    pub words: u8,
    /// Where the value of each column is, in their order.
    pub columns: Vec<Slots>,
    /// Where the value of each metric is, in their order.
    pub metrics: Vec<Slots>,
}

impl Program {
    /// How many operations run at the enter; the others run at the exit.
    #[must_use]
    pub fn at_enter(&self) -> usize {
        self.fetches.iter().take_while(|fetch| fetch.at == At::Enter).count()
    }
}

/// Where a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Its first word.
    pub first: u8,
    /// Its words.
    pub words: u8,
    /// The operations that it depends on, a bit for each by their place: if one of them fails, the value is null.
    pub fetches: u16,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// When it runs.
    pub at: At,
    /// The first word that it fills.
    pub target: u8,
    /// What it does.
    pub step: Step,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Takes a register of the function's first instruction.
    Register(Register, Width),
    /// Takes the low bytes of a vector register of the function's first instruction, if the call comes by a stub.
    Vector(u8, Width),
    /// Reads the stack so many bytes above the return address.
    Stack(u32, Width),
    /// Reads memory so many bytes behind the address in a word.
    Deref(u8, i32, Width),
    /// Reads text of so many bytes at most from the address in a word, and pads it with zeros.
    Text(u8, u8),
    /// Takes `rax`.
    Result(Width),
    /// Takes the address of the thread's `errno`.
    ErrnoAddress,
    /// Reads memory so many bytes behind the thread pointer.
    Thread(i32, Width),
    /// Takes a number.
    Const(i32),
    /// Shifts a word right by so many bits, and cuts it.
    Shift(u8, u8, Width),
    /// Computes of a word and another one, or a number.
    Binary(Operator, u8, Operand),
}

/// The arithmetic of signed words, which wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operator {
    Multiply,
    Add,
    Subtract,
    Max,
    Min,
}

/// The right side of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A word.
    Word(u8),
    /// A number.
    Number(i32),
}

/// Assembles one program that fetches the columns and computes the metrics of a function.
///
/// Metrics are placed first, because sums depend on them, then columns with a role, then the others. Those for which
/// there is no room any more are taken out, and returned with the reason.
pub fn assemble(columns: &mut Vec<Column>, metrics: &mut Vec<Metric>) -> (Program, Vec<Dropped>) {
    let mut nodes = Nodes::default();
    let placed_metrics: Vec<Option<Value>> = metrics.iter().map(|metric| nodes.place(&metric.program, 1)).collect();
    let mut placed: Vec<Option<Value>> = vec![None; columns.len()];
    for with_role in [true, false] {
        for (place, column) in columns.iter().enumerate().filter(|(_, column)| column.role.is_some() == with_role) {
            placed[place] = nodes.place(&column.program, column.words());
        }
    }
    let mut dropped = Vec::new();
    let mut drop = |name: &str, c_type: &str| {
        dropped.push(Dropped { name: name.to_owned(), c_type: c_type.to_owned(), reason: DropReason::NoRoom });
    };
    for (_, column) in placed.iter().zip(&*columns).filter(|(place, _)| place.is_none()) {
        drop(&column.name, &column.c_type);
    }
    for (_, metric) in placed_metrics.iter().zip(&*metrics).filter(|(place, _)| place.is_none()) {
        drop(&metric.name, metric.unit.name());
    }
    keep(columns, &placed);
    keep(metrics, &placed_metrics);
    let (fetches, words, slots) = nodes.allocate();
    let found = |places: Vec<Option<Value>>| places.into_iter().flatten().map(|place| slots[place.node]).collect();
    (Program { fetches, words, columns: found(placed), metrics: found(placed_metrics) }, dropped)
}

fn keep<T>(items: &mut Vec<T>, placed: &[Option<Value>]) {
    let mut places = placed.iter();
    items.retain(|_| places.next().is_some_and(Option::is_some));
}

/// The first of the nodes that hold a value.
#[derive(Clone, Copy, Debug)]
struct Value {
    node: usize,
}

/// An operation whose operands are named by their node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Node {
    at: At,
    step: Step,
    /// The words that it fills.
    words: usize,
    /// It continues the value of the node before it.
    continues: bool,
}

/// What is on the stack while a program of a column is read.
#[derive(Clone, Copy, Debug)]
enum Item {
    Node(usize),
    Number(i32),
}

#[derive(Clone, Debug, Default)]
struct Nodes {
    nodes: Vec<Node>,
    /// The first node of each value that is kept to the end.
    kept: Vec<usize>,
}

impl Nodes {
    /// Adds what a program needs, and says where its value is; changes nothing if there is no room.
    fn place(&mut self, program: &[Op], words: usize) -> Option<Value> {
        let mut tried = self.clone();
        let node = tried.value(program, words)?;
        tried.kept.push(node);
        let (fetches, used, _) = tried.allocate();
        if fetches.len() > MOST_OPS || usize::from(used) > MOST_VALUE_WORDS {
            return None;
        }
        *self = tried;
        Some(Value { node })
    }

    /// The first node of a program's value, or nothing if the program is not one.
    fn value(&mut self, program: &[Op], words: usize) -> Option<usize> {
        let mut stack: Vec<Item> = Vec::new();
        for &op in program {
            let item = self.item(op, &mut stack)?;
            stack.push(item);
        }
        let parts = stack.iter().map(|&item| self.node(item)).collect::<Option<Vec<usize>>>()?;
        let [first, others @ ..] = parts.as_slice() else { return None };
        if parts.iter().map(|&part| self.nodes[part].words).sum::<usize>() != words {
            return None;
        }
        if others.is_empty() {
            return Some(*first);
        }
        // The words of one value lie side by side, so nothing that stands elsewhere will do.
        let start = self.nodes.len();
        for (place, &part) in parts.iter().enumerate() {
            self.nodes.push(Node { continues: place > 0, ..self.nodes[part] });
        }
        Some(start)
    }

    fn item(&mut self, op: Op, stack: &mut Vec<Item>) -> Option<Item> {
        let (at, step, words) = match op {
            Op::Register { register, width } => (At::Enter, Step::Register(register, width), 1),
            Op::Vector { number, width } => (At::Enter, Step::Vector(number, width), 1),
            Op::Stack { offset, width } => (At::Enter, Step::Stack(offset, width), 1),
            Op::Deref { offset, width, at } => (at, Step::Deref(self.pop(stack)?, offset, width), 1),
            Op::Text { max, at } => (at, Step::Text(self.pop(stack)?, max), usize::from(max) / 8),
            Op::Result { width } => (At::Exit, Step::Result(width), 1),
            // Where it is, the library knows that is entered.
            Op::Errno => {
                let address = u8::try_from(self.add(At::Enter, Step::ErrnoAddress, 1)).ok()?;
                (At::Exit, Step::Deref(address, 0, Width { bytes: 4, signed: true }), 1)
            }
            Op::Thread { offset, width, at } => (at, Step::Thread(offset, width), 1),
            Op::Const(number) => return Some(Item::Number(number)),
            Op::Shift { right, width } => (At::Enter, Step::Shift(self.pop(stack)?, right, width), 1),
            Op::Multiply => return self.binary(Operator::Multiply, stack),
            Op::Add => return self.binary(Operator::Add, stack),
            Op::Subtract => return self.binary(Operator::Subtract, stack),
            Op::Max => return self.binary(Operator::Max, stack),
            Op::Min => return self.binary(Operator::Min, stack),
        };
        Some(Item::Node(self.add(at, step, words)))
    }

    fn binary(&mut self, operator: Operator, stack: &mut Vec<Item>) -> Option<Item> {
        let (mut right, mut left) = (stack.pop()?, stack.pop()?);
        if matches!((left, operator), (Item::Number(_), operator) if operator != Operator::Subtract) {
            (left, right) = (right, left);
        }
        let left = self.node(left)?;
        let operand = match right {
            Item::Number(number) => Operand::Number(number),
            Item::Node(node) => Operand::Word(u8::try_from(node).ok()?),
        };
        let step = Step::Binary(operator, u8::try_from(left).ok()?, operand);
        Some(Item::Node(self.add(At::Enter, step, 1)))
    }

    fn pop(&mut self, stack: &mut Vec<Item>) -> Option<u8> {
        let item = stack.pop()?;
        u8::try_from(self.node(item)?).ok()
    }

    fn node(&mut self, item: Item) -> Option<usize> {
        let node = match item {
            Item::Node(node) => node,
            Item::Number(number) => self.add(At::Enter, Step::Const(number), 1),
        };
        // Numbers of nodes are bytes while words are not allocated yet.
        (node < usize::from(u8::MAX)).then_some(node)
    }

    /// The node of an operation that runs at this time at the earliest.
    fn add(&mut self, earliest: At, step: Step, words: usize) -> usize {
        let at = operands(step).map(|operand| self.nodes[usize::from(operand)].at).fold(earliest, At::max);
        let node = Node { at, step, words, continues: false };
        let known = (0..self.nodes.len()).find(|&place| self.nodes[place] == node && !self.is_part(place));
        known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// Whether a node is one of several that hold a value.
    fn is_part(&self, place: usize) -> bool {
        self.nodes[place].continues || self.nodes.get(place + 1).is_some_and(|next| next.continues)
    }

    /// The nodes that hold the value that begins with one.
    fn parts(&self, first: usize) -> std::ops::Range<usize> {
        let more = self.nodes[first + 1..].iter().take_while(|node| node.continues).count();
        first..first + 1 + more
    }

    /// Gives words to the nodes that are needed: the operations, how many words they use, and where the value that
    /// begins with each node is.
    fn allocate(&self) -> (Vec<Fetch>, u8, Vec<Slots>) {
        let mut needed = vec![false; self.nodes.len()];
        for &first in &self.kept {
            self.parts(first).for_each(|part| needed[part] = true);
        }
        for place in (0..self.nodes.len()).rev() {
            if needed[place] {
                operands(self.nodes[place].step).for_each(|operand| needed[usize::from(operand)] = true);
            }
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|&place| needed[place]).collect();
        order.sort_by_key(|&place| self.nodes[place].at);
        let mut words = Words::default();
        let mut fetches = Vec::new();
        let mut slots = vec![Slots::default(); self.nodes.len()];
        for (number, &place) in order.iter().enumerate() {
            let node = self.nodes[place];
            if !node.continues {
                let parts = self.parts(place);
                let size = parts.clone().map(|part| self.nodes[part].words).sum();
                let is_kept = self.kept.contains(&place);
                let last_use = match is_kept {
                    true => usize::MAX,
                    false => order.iter().rposition(|&user| uses(self.nodes[user].step, place)).unwrap_or(number),
                };
                slots[place] = Slots { first: words.take(size, number, last_use), words: size as u8, fetches: 0 };
            }
            let target = match node.continues {
                true => slots[place - 1].first + self.nodes[place - 1].words as u8,
                false => slots[place].first,
            };
            slots[place].first = target;
            let inherited = operands(node.step).fold(0, |all, operand| all | slots[usize::from(operand)].fetches);
            slots[place].fetches = inherited | 1_u16.checked_shl(number as u32).unwrap_or(0);
            fetches.push(Fetch {
                at: node.at,
                target,
                step: renamed(node.step, |operand| slots[usize::from(operand)].first),
            });
        }
        for &first in &self.kept {
            slots[first].fetches = self.parts(first).fold(0, |all, part| all | slots[part].fetches);
        }
        (fetches, words.used(), slots)
    }
}

/// Which words are taken, each until the operation with this number has run.
#[derive(Debug, Default)]
struct Words(Vec<usize>);

impl Words {
    /// The first of so many words side by side that no operation needs from this one on.
    fn take(&mut self, size: usize, number: usize, last_use: usize) -> u8 {
        let is_free = |&until: &usize| until < number;
        let room = (0..self.0.len()).find(|&first| self.0[first..].iter().take(size).all(is_free));
        let first = room.unwrap_or(self.0.len());
        self.0.resize(self.0.len().max(first + size), 0);
        self.0[first..first + size].fill(last_use);
        first as u8
    }

    fn used(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }
}

/// The words, or nodes, that an operation takes.
fn operands(step: Step) -> impl Iterator<Item = u8> {
    let (first, second) = match step {
        Step::Deref(base, ..) | Step::Text(base, _) | Step::Shift(base, ..) => (Some(base), None),
        Step::Binary(_, left, Operand::Word(right)) => (Some(left), Some(right)),
        Step::Binary(_, left, Operand::Number(_)) => (Some(left), None),
        Step::Register(..)
        | Step::Vector(..)
        | Step::Stack(..)
        | Step::Result(_)
        | Step::ErrnoAddress
        | Step::Thread(..)
        | Step::Const(_) => (None, None),
    };
    first.into_iter().chain(second)
}

fn uses(step: Step, node: usize) -> bool {
    operands(step).any(|operand| usize::from(operand) == node)
}

fn renamed(step: Step, name: impl Fn(u8) -> u8) -> Step {
    match step {
        Step::Deref(base, offset, width) => Step::Deref(name(base), offset, width),
        Step::Text(base, max) => Step::Text(name(base), max),
        Step::Shift(base, right, width) => Step::Shift(name(base), right, width),
        Step::Binary(operator, left, Operand::Word(right)) => {
            Step::Binary(operator, name(left), Operand::Word(name(right)))
        }
        Step::Binary(operator, left, number) => Step::Binary(operator, name(left), number),
        other => other,
    }
}
