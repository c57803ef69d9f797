//! A thread's story as a line of words, each of them 10 ns after the one before.
//!
//! `f+80` enters the function `f`, which has been called from the return address `F` with slot 80;
//! `f+80X` has been called from `X`. `f-80` is an arrival at `F` with the stack pointer above slot 80;
//! `X-80` is one at `X`. Before it
//! stands the stack if it is not the thread's own: `signal:`, `other:`, `third:`. Behind an enter and a
//! slash stand letters: `e` for a function that is entry-only, `k`
//! for one whose tail calls are known, `y` for one that may jump anywhere, `q` for one that may also have been left, `t` for one that is reached by a
//! tail call, which leaves the slot as it is, `n` for one that does not return, `l` for one that may come back to its
//! first instruction, `p` for one that takes two words off the stack as it returns. Behind an arrival a slash and `r` stand for a stack pointer just
//! above the slot, so that the words below are as they were when the call returned.
//!
//! `J300^1000` is a jump that a probe sees, from where the stack pointer is 300 to where it is 1000, which may be a
//! switch of stacks; `E300^1000` one that cannot be.
//!
//! `X@80` stands for untraced code that is called from `X`, `w80` for untraced code that writes to the
//! address 80, `z80` for one that writes a zero, `h80` for another tracer that hooks the return there,
//! `l80` for one that has lost what it replaced, `x80` for a page that goes out. `m80` says that what returns from the slot
//! 80 has done so on another thread.
//!
//! What takes no time: `b>c` says that `b` is known to end in jumps to `c`. `X=placed` makes `X` an
//! address with a probe and of several callees, `X=fixed` one of a single callee, which addresses are
//! that nothing is said of; `X=catches` one of a single callee, too, whose caller may get control back
//! without a return. `X=skip2` makes it one where the caller only returns, from 2 words above; `X=asked`,
//! `X=impossible`, `X=dropped` have no probe, and their callers may get control back, too.

use crate::wire::{ANYWHERE, ArrivalCode, BehindBit, CallRecord, EndingCode, PolicyCode, TailsCode};

use super::{Function, Hit, OTHER, OWN, SIGNAL, Thread};

const TICK: u64 = 10;

/// Words below the stack pointer that signal handlers leave alone.
const RED_ZONE: u8 = 16;

pub struct Script {
    pub thread: Thread,
    now: u64,
    varying: Vec<u64>,
    /// Arrivals that ended nothing.
    pub missed: u32,
}

/// The return address with this letter.
pub fn address(letter: u8) -> u64 {
    0x40_0000 + u64::from(letter.to_ascii_uppercase())
}

impl Script {
    pub fn run(text: &str) -> Script {
        Script::run_on(Thread::new(), text)
    }

    pub fn run_on(thread: Thread, text: &str) -> Script {
        let mut script = Script { thread, now: 0, varying: Vec::new(), missed: 0 };
        script.go_on(text);
        script
    }

    pub fn go_on(&mut self, text: &str) {
        text.split_ascii_whitespace().for_each(|word| self.step(word));
    }

    /// The thread ends.
    pub fn end(&mut self) {
        self.now += TICK;
        self.thread.abandon(self.now);
    }

    fn step(&mut self, word: &str) {
        let (stack, word) = word.split_once(':').unwrap_or(("own", word));
        let stack = match stack {
            "own" => OWN,
            "signal" => SIGNAL,
            "other" => OTHER | 1,
            "third" => OTHER | 2,
            _ => panic!("no such stack: {stack}"),
        };
        if let Some((from, target)) = word[1..].split_once('^') {
            self.now += TICK;
            let (from, target) = (from.parse().unwrap(), target.parse().unwrap());
            return self.thread.jump(from, target, stack, self.now, word.starts_with('E'));
        }
        let (&[first, kind], rest) = word.as_bytes().split_first_chunk().unwrap();
        if kind == b'=' {
            return self.learn(address(first), &word[2..]);
        }
        if kind == b'>' {
            return self.thread.world.add_tail(first.into(), rest[0].into());
        }
        self.now += TICK;
        if kind.is_ascii_digit() {
            let place = word[1..].parse().unwrap();
            return if first == b'm' { self.thread.returns_elsewhere(place) } else { self.disturb(first, place) };
        }
        let (place, flags) = word[2..].split_once('/').unwrap_or((&word[2..], ""));
        let digits = place.trim_end_matches(char::is_alphabetic);
        let from = address(place.as_bytes().get(digits.len()).copied().unwrap_or(first));
        let hit = Hit { slot: digits.parse().unwrap(), stack, now: self.now };
        match kind {
            b'@' => self.thread.world.write(hit.slot, from),
            b'+' => self.enter(hit, first, from, flags),
            b'-' => {
                let is_fixed = !self.varying.contains(&from);
                let reach = if flags.contains('r') { RED_ZONE } else { 0 };
                self.missed += u32::from(!self.thread.arrive(hit, from, is_fixed, reach));
            }
            _ => panic!("no such word: {word}"),
        }
    }

    fn learn(&mut self, address: u64, what: &str) {
        let (kind, words) = match what.strip_prefix("skip") {
            Some(words) => (ArrivalCode::RT_ARRIVAL_SKIP, words.parse().unwrap()),
            None => match what {
                "placed" | "fixed" => (ArrivalCode::RT_ARRIVAL_PLACED, 0),
                "catches" => (ArrivalCode::RT_ARRIVAL_PLACED, BehindBit::RT_BEHIND_CATCHES.0),
                "asked" => (ArrivalCode::RT_ARRIVAL_ASKED, 0),
                "calls1" => (ArrivalCode::RT_ARRIVAL_PLACED, BehindBit::RT_BEHIND_FIXED.0),
                "lands" => (ArrivalCode::RT_ARRIVAL_PLACED, BehindBit::RT_BEHIND_LANDS.0),
                "joined" => (ArrivalCode::RT_ARRIVAL_PLACED, BehindBit::RT_BEHIND_JOINED.0),
                "impossible" => (ArrivalCode::RT_ARRIVAL_IMPOSSIBLE, 0),
                "dropped" => (ArrivalCode::RT_ARRIVAL_DROPPED, 0),
                _ => panic!("not known of a return address: {what}"),
            },
        };
        self.thread.world.set_arrival(address, kind, words);
        if what == "placed" {
            self.varying.push(address);
        }
    }

    fn disturb(&self, what: u8, address: u64) {
        let world = &self.thread.world;
        match what {
            b'w' => world.write(address, self.now),
            b'z' => world.write(address, 0),
            b'h' => world.hook(address),
            b'l' => world.forget_replaced(address),
            b'x' => world.take_out(address),
            _ => panic!("nothing of this kind happens to memory: {what}"),
        }
    }

    fn enter(&mut self, hit: Hit, function: u8, from: u64, flags: &str) {
        let policy = match flags {
            _ if flags.contains('e') => PolicyCode::RT_POLICY_ENTRY_ONLY,
            _ if flags.contains('n') => PolicyCode::RT_POLICY_NEVER,
            _ => PolicyCode::RT_POLICY_RETURN_SITE,
        };
        let tails = match flags {
            _ if flags.contains('q') => TailsCode::RT_TAILS_DOUBTFUL,
            _ if flags.contains('k') => TailsCode::RT_TAILS_KNOWN,
            _ if flags.contains('y') => TailsCode::RT_TAILS_ANYWHERE,
            _ => TailsCode::RT_TAILS_NEVER,
        };
        if flags.contains(['q', 'y']) && !flags.contains('k') {
            self.thread.world.add_tail(function.into(), ANYWHERE);
        }
        if !flags.contains('t') {
            self.thread.world.write(hit.slot, from);
        }
        let (laps, pops) = (flags.contains('l'), if flags.contains('p') { 2 } else { 0 });
        self.thread.enter(hit, Function { region: function.into(), policy, tails, laps, pops });
    }

    /// The records so far by call: `function id<parent depth ending duration/child`.
    pub fn lines(&self) -> Vec<String> {
        let mut records = self.thread.records().to_vec();
        records.sort_by_key(|call| call.id);
        records.iter().map(line).collect()
    }
}

fn line(call: &CallRecord) -> String {
    let ending = match call.ending {
        EndingCode::RT_RETURNED => "returned",
        EndingCode::RT_UNWOUND => "unwound",
        EndingCode::RT_OPEN => "open",
        _ => "unseen",
    };
    let function = char::from_u32(call.region).unwrap();
    format!("{function} {}<{} {} {ending} {}/{}", call.id, call.parent, call.depth, call.duration, call.child)
}

/// Runs a script and ends the thread: these are the records then, by call. Each arrival has ended a call.
#[track_caller]
pub fn check(text: &str, expected: &[&str]) {
    check_with_missed(0, text, expected);
}

/// The same with so many arrivals that ended nothing.
#[track_caller]
pub fn check_with_missed(missed: u32, text: &str, expected: &[&str]) {
    let mut script = Script::run(text);
    script.end();
    assert_eq!(script.lines(), expected);
    assert_eq!(script.missed, missed);
    assert_eq!(script.thread.frames().len(), 0);
    assert!(script.thread.is_intact());
    assert!(script.thread.counts_well());
}
