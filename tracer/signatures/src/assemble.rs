//! From the columns of a function to the one program that the kernel side runs for it.
//!
//! Values stand in words; each operation fills some. What two columns have in common, such as the register of a
//! pointer, is fetched once. Operations are sorted by when they run, and a word is written only once in a call, so a
//! value of the enter is still there at the exit.

use crate::{
    At, DropReason, Dropped, MOST_ELEMENTS, MOST_LISTED_WORDS, MOST_OPS, MOST_VALUE_WORDS, MetricSpec, Op, OpCode,
    ValueSpec,
};

/// All that is fetched of one function's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchProgram {
    /// The operations, those of the enter first: at most [`MOST_OPS`].
    pub fetches: Vec<Fetch>,
    /// The words that they fill: at most [`MOST_VALUE_WORDS`]. Lists that are read at the exit fill those from there on.
    pub words: u8,
    /// Where the value of each column is, in their order.
    pub columns: Vec<Slots>,
    /// Where the value of each metric is, in their order.
    pub metrics: Vec<Slots>,
}

impl FetchProgram {
    /// Whether lists are read at the exit.
    pub fn has_lists(&self) -> bool {
        self.fetches.iter().any(|fetch| fetch.op.code == OpCode::List && fetch.op.at == At::Exit)
    }

    /// How many operations run at the enter; the others run at the exit.
    pub fn at_enter(&self) -> usize {
        self.fetches.iter().take_while(|fetch| fetch.op.at == At::Enter).count()
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
    pub fetches: u32,
}

/// One operation in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// What it does, and when it runs.
    pub op: Op,
    /// The first word that it fills.
    pub target: u8,
    /// The words that it takes. Arithmetic takes one and the number where there is no second one.
    pub operands: [Option<u8>; 2],
}

impl Fetch {
    /// Whether the kernel side, which reads lists of a few sizes, has room for one where it is to be.
    fn has_room(&self) -> bool {
        if self.op.code != OpCode::List {
            return true;
        }
        let bytes = usize::from(MOST_ELEMENTS) * self.op.number as usize;
        let (end, read) = match (self.op.at, bytes) {
            (At::Enter, _) => (MOST_VALUE_WORDS, 16),
            (At::Exit, ..=64) => (MOST_VALUE_WORDS + MOST_LISTED_WORDS, 8),
            (At::Exit, _) => (MOST_VALUE_WORDS + MOST_LISTED_WORDS, 48),
        };
        bytes <= read * 8 && usize::from(self.target) + 1 + read <= end
    }
}

/// Assembles one program that fetches the columns and computes the metrics of a function.
///
/// Metrics are placed first, because sums depend on them, then columns with a role, then the others. Those for which
/// there is no room any more are taken out, and returned with the reason.
pub fn assemble(columns: &mut Vec<ValueSpec>, metrics: &mut Vec<MetricSpec>) -> (FetchProgram, Vec<Dropped>) {
    let mut nodes = Nodes::default();
    let placed_metrics: Vec<Option<NodeValue>> = metrics.iter().map(|metric| nodes.place(&metric.program, 1)).collect();
    let mut placed: Vec<Option<NodeValue>> = vec![None; columns.len()];
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
    let found = |places: Vec<Option<NodeValue>>| places.into_iter().flatten().map(|place| slots[place.node]).collect();
    (FetchProgram { fetches, words, columns: found(placed), metrics: found(placed_metrics) }, dropped)
}

fn keep<T>(items: &mut Vec<T>, placed: &[Option<NodeValue>]) {
    let mut places = placed.iter();
    items.retain(|_| places.next().is_some_and(Option::is_some));
}

/// The first of the nodes that hold a value.
#[derive(Clone, Copy, Debug)]
struct NodeValue {
    node: usize,
}

/// An operation whose operands are named by their node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OpNode {
    op: Op,
    operands: [Option<u8>; 2],
    /// It continues the value of the node before it.
    continues: bool,
}

/// What is on the stack while a program of a column is read.
#[derive(Clone, Copy, Debug)]
enum StackItem {
    Node(usize),
    Number(i32),
}

#[derive(Clone, Debug, Default)]
struct Nodes {
    nodes: Vec<OpNode>,
    /// The first node of each value that is kept to the end.
    kept: Vec<usize>,
}

impl Nodes {
    /// Adds what a program needs, and says where its value is; changes nothing if there is no room.
    fn place(&mut self, program: &[Op], words: usize) -> Option<NodeValue> {
        let mut tried = self.clone();
        let node = tried.value(program, words)?;
        tried.kept.push(node);
        let (fetches, used, _) = tried.allocate();
        if fetches.len() > MOST_OPS || usize::from(used) > MOST_VALUE_WORDS || !fetches.iter().all(Fetch::has_room) {
            return None;
        }
        *self = tried;
        Some(NodeValue { node })
    }

    /// The first node of a program's value, or nothing if the program is not one.
    fn value(&mut self, program: &[Op], words: usize) -> Option<usize> {
        let mut stack: Vec<StackItem> = Vec::new();
        for &op in program {
            let item = self.item(op, &mut stack)?;
            stack.push(item);
        }
        let parts = stack.iter().map(|&item| self.node(item)).collect::<Option<Vec<usize>>>()?;
        let [first, others @ ..] = parts.as_slice() else { return None };
        if parts.iter().map(|&part| self.nodes[part].op.words()).sum::<usize>() != words {
            return None;
        }
        if others.is_empty() {
            return Some(*first);
        }
        // The words of one value lie side by side, so nothing that stands elsewhere will do.
        let start = self.nodes.len();
        for (place, &part) in parts.iter().enumerate() {
            self.nodes.push(OpNode { continues: place > 0, ..self.nodes[part] });
        }
        Some(start)
    }

    fn item(&mut self, mut op: Op, stack: &mut Vec<StackItem>) -> Option<StackItem> {
        let operands = match op.code {
            OpCode::Number => return Some(StackItem::Number(op.number)),
            OpCode::Memory | OpCode::Text | OpCode::Shift | OpCode::Tagged => [Some(self.pop(stack)?), None],
            OpCode::List | OpCode::Sum | OpCode::Keep | OpCode::Kept => {
                let number = self.pop(stack)?;
                [Some(self.pop(stack)?), Some(number)]
            }
            OpCode::Multiply | OpCode::Add | OpCode::Subtract | OpCode::Max | OpCode::Min => {
                let (mut right, mut left) = (stack.pop()?, stack.pop()?);
                if matches!(left, StackItem::Number(_)) && op.code != OpCode::Subtract {
                    (left, right) = (right, left);
                }
                let left = u8::try_from(self.node(left)?).ok()?;
                match right {
                    StackItem::Number(number) => {
                        op.number = number;
                        [Some(left), None]
                    }
                    StackItem::Node(node) => [Some(left), Some(u8::try_from(node).ok()?)],
                }
            }
            OpCode::Register | OpCode::Stack | OpCode::Result | OpCode::ErrnoAddress | OpCode::Vector | OpCode::Cpu => {
                [None; 2]
            }
        };
        Some(StackItem::Node(self.add(op, operands)))
    }

    fn pop(&mut self, stack: &mut Vec<StackItem>) -> Option<u8> {
        let item = stack.pop()?;
        u8::try_from(self.node(item)?).ok()
    }

    fn node(&mut self, item: StackItem) -> Option<usize> {
        let node = match item {
            StackItem::Node(node) => node,
            StackItem::Number(number) => self.add(Op::number(number), [None; 2]),
        };
        // Numbers of nodes are bytes while words are not allocated yet.
        (node < usize::from(u8::MAX)).then_some(node)
    }

    /// The node of an operation, which runs after its operands.
    fn add(&mut self, op: Op, operands: [Option<u8>; 2]) -> usize {
        let at = operands.iter().flatten().map(|&operand| self.nodes[usize::from(operand)].op.at).fold(op.at, At::max);
        let node = OpNode { op: Op { at, ..op }, operands, continues: false };
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
                self.nodes[place].operands.iter().flatten().for_each(|&operand| needed[usize::from(operand)] = true);
            }
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|&place| needed[place]).collect();
        order.sort_by_key(|&place| self.nodes[place].op.at);
        let (mut words, mut listed) = (WordTable::default(), MOST_VALUE_WORDS as u8);
        let mut fetches = Vec::new();
        let mut slots = vec![Slots::default(); self.nodes.len()];
        for (number, &place) in order.iter().enumerate() {
            let node = self.nodes[place];
            if !node.continues {
                let parts = self.parts(place);
                let size = parts.clone().map(|part| self.nodes[part].op.words()).sum();
                let is_kept = self.kept.contains(&place);
                let uses =
                    |&user: &usize| self.nodes[user].operands.iter().flatten().any(|&one| usize::from(one) == place);
                let last_use = match is_kept {
                    true => usize::MAX,
                    false => order.iter().rposition(uses).unwrap_or(number),
                };
                // What is read last stays where it is read.
                let first = match (node.op.code, node.op.at) {
                    (OpCode::List, At::Exit) => {
                        let first = listed;
                        listed = listed.saturating_add(size as u8);
                        first
                    }
                    _ => words.take(size, number, last_use),
                };
                slots[place] = Slots { first, words: size as u8, fetches: 0 };
            }
            let target = match node.continues {
                true => slots[place - 1].first + self.nodes[place - 1].op.words() as u8,
                false => slots[place].first,
            };
            slots[place].first = target;
            let inherited = node.operands.iter().flatten().fold(0, |all, &one| all | slots[usize::from(one)].fetches);
            slots[place].fetches = inherited | 1_u32.checked_shl(number as u32).unwrap_or(0);
            let operands = node.operands.map(|operand| Some(slots[usize::from(operand?)].first));
            fetches.push(Fetch { op: node.op, target, operands });
        }
        for &first in &self.kept {
            slots[first].fetches = self.parts(first).fold(0, |all, part| all | slots[part].fetches);
        }
        (fetches, words.used(), slots)
    }
}

/// Which words are taken, each until the operation with this number has run.
#[derive(Debug, Default)]
struct WordTable(Vec<usize>);

impl WordTable {
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
