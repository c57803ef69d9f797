//! What becomes of return addresses that the kernel side has met.

use std::ops::RangeInclusive;

use foldhash::{HashMap, HashMapExt as _};
use rtrace_bpf::wire::{QuestionCode, QuestionRecord};
use rtrace_bpf::{ArrivalRule, Behind, Error, FilePlace};
use rtrace_code::arrival;

use super::links::Placement;
use super::site::Placed;
use super::{FileId, Key, ReturnSites};
use crate::target::presence::ProcessCode;
use crate::target::privilege;

/// Sites that are placed with one that was met, at most: they take the kernel some 0.3 ms.
const MOST_NEXT: usize = 64;

/// What becomes of a return address that was met.
enum Decision {
    /// Nothing.
    Nothing,
    /// This is to be known of it.
    Answer(ArrivalRule),
    /// These sites of a file are placed first.
    Place(FileId, Vec<Placement>),
}

impl ReturnSites<'_> {
    /// Places the sites for return addresses that the kernel side has met; `is_awaited`: threads wait for them.
    pub(super) fn place(&mut self, asked: &[QuestionRecord], is_awaited: bool) -> Result<(), Error> {
        let mut answers: HashMap<u32, Vec<(u64, ArrivalRule)>> = HashMap::new();
        let mut placements: HashMap<(u32, FileId), Vec<Placement>> = HashMap::new();
        self.spaces.may_have_changed();
        for question in asked {
            match self.decide(question, is_awaited)? {
                Decision::Nothing => {}
                Decision::Answer(answer) => {
                    answers.entry(question.space).or_default().push((question.address, answer));
                }
                Decision::Place(file, sites) => placements.entry((question.pid, file)).or_default().extend(sites),
            }
        }
        for ((pid, file), sites) in placements {
            let Some(path) = self.callers.path(file) else { continue };
            let space = sites.iter().find_map(|site| self.placed[site.id as usize].met.first());
            let known = space.and_then(|(space, _)| self.spaces.process(pid, *space));
            let process = known.or_else(|| ProcessCode::of(pid));
            let refused = self.place_unchanged((pid, process), file, &path, &sites)?;
            let mut offsets = Vec::with_capacity(sites.len());
            let mut primed = Vec::new();
            for site in sites {
                let is_refused = refused.contains(&site.id);
                let answer = if is_refused { ArrivalRule::Impossible } else { self.in_place(site.id) };
                let Placed { offset, ref met, is_interim, .. } = self.placed[site.id as usize];
                if met.is_empty() && !is_refused {
                    primed.push((self.placed[site.id as usize].place(), answer));
                }
                // Of the address of an interim site, what is known stays true.
                for &(space, address) in met.iter().filter(|_| !is_interim) {
                    answers.entry(space).or_default().push((address, answer));
                }
                if is_refused {
                    self.forget(site.id);
                } else if !is_interim {
                    offsets.push(offset);
                }
            }
            self.programs.prime(&primed)?;
            self.share(pid, file, &offsets);
        }
        for (space, arrivals) in answers {
            self.programs.set_arrivals(space, &arrivals)?;
        }
        // Nobody waits for these.
        for (pid, files) in self.spaces.take_met() {
            self.jumps.place(pid, &files)?;
        }
        Ok(())
    }

    /// What is to become of a return address.
    fn decide(&mut self, question: &QuestionRecord, is_awaited: bool) -> Result<Decision, Error> {
        let QuestionRecord { address, pid, space, .. } = *question;
        let met = FilePlace::of(&question.place);
        let (file, offset) = match (self.spaces.find(question), met) {
            (Some(place), _) => {
                self.callers.add(place.file, &place.path, None);
                (place.file, place.offset)
            }
            // It is not mapped any more, and may come again.
            (None, Some(met)) => {
                self.programs.forget_arrival(met, &[(space, address)])?;
                return Ok(Decision::Nothing);
            }
            (None, None) => return Ok(out_of_reach(pid)),
        };
        self.ahead.meet(file, offset);
        if self.callers.path(file).is_none() {
            return Ok(out_of_reach(pid));
        }
        if question.kind == QuestionCode::RT_QUESTION_INTERIM {
            return Ok(self.interim_site((pid, file, offset), (space, address)));
        }
        let known = self.known.get(&(pid, file, offset)).copied();
        if let Some(id) = known.filter(|&id| !self.placed[id as usize].is_interim) {
            // The process has executed another program since, or maps the file elsewhere.
            let met = &mut self.placed[id as usize].met;
            if !met.is_empty() && !met.contains(&(space, address)) {
                met.push((space, address));
            }
            return Ok(Decision::Answer(self.in_place(id)));
        }
        if !self.may_come_back((pid, file, offset), (space, address))? {
            return Ok(Decision::Answer(ArrivalRule::Dropped { after: 0 }));
        }
        let arrival = match question.kind {
            QuestionCode::RT_QUESTION_ARRIVAL => self.callers.arrival(file, offset, self.read_at(file, offset)),
            _ => match self.callers.at_return_address(file, offset) {
                Some(site) => {
                    self.only_returns.insert((file, offset));
                    arrival::Arrival::Site(site)
                }
                None => arrival::Arrival::Impossible,
            },
        };
        Ok(match arrival {
            arrival::Arrival::Site(site) => {
                let mut sites = self.sites(file, offset, pid, site, vec![(space, address)]);
                sites.extend(self.next_sites(pid, file, offset, is_awaited));
                Decision::Place(file, sites)
            }
            arrival::Arrival::Skip { words } => Decision::Answer(self.skipped(file, offset, words)),
            arrival::Arrival::Never => Decision::Answer(self.never_met(file, offset)),
            arrival::Arrival::Impossible => Decision::Answer(ArrivalRule::Impossible),
        })
    }

    /// The sites of the other direct calls in the function that makes this one: it runs now. Where none is known and somebody
    /// waits, those of the next calls of the same callee: who calls it from one place may go through thousands. Twice as many
    /// each time that one of them is met.
    fn next_sites(&mut self, pid: u32, file: FileId, offset: u64, is_awaited: bool) -> Vec<Placement> {
        let room = self.room_for_met();
        let mut next = self.calls_beside(file, offset);
        next.retain(|&offset| !self.known.contains_key(&(pid, file, offset)));
        if next.is_empty() && is_awaited {
            let Some(callee) = self.callers.callee(file, offset) else { return Vec::new() };
            let met = self.met.entry((pid, file, callee)).or_default();
            let most = (*met).min(room);
            *met = (*met * 2).clamp(1, MOST_NEXT);
            next = if most > 0 { self.callers.next_calls(file, offset, callee, most) } else { Vec::new() };
            next.retain(|&offset| !self.known.contains_key(&(pid, file, offset)));
        }
        next.truncate(room);
        let direct = &self.direct;
        let arrivals = self.callers.arrivals(file, &next, |offset| direct.get(&(file, offset)).copied());
        let sites = next.into_iter().zip(arrivals).filter_map(|(offset, arrival)| match arrival {
            arrival::Arrival::Site(site) => Some((offset, site)).filter(|_| self.is_worth(file, offset, site)),
            _ => None,
        });
        let sites: Vec<_> = sites.collect();
        sites.into_iter().map(|(offset, site)| self.add(file, offset, pid, site, Vec::new())).collect()
    }

    /// Where the direct calls of the function that makes this one return to, as far as they were looked for: those behind it
    /// first.
    fn calls_beside(&self, file: FileId, offset: u64) -> Vec<u64> {
        let Some(function) = self.callers.function(file, offset) else { return Vec::new() };
        let within = |offsets: RangeInclusive<u64>| {
            let keys = (file, *offsets.start())..=(file, *offsets.end());
            self.direct.range(keys).map(|(&(_, offset), _)| offset)
        };
        let mut beside: Vec<u64> = within(offset + 1..=function.end.max(offset + 1)).take(MOST_NEXT).collect();
        beside.extend(within(function.start..=offset).rev().take(MOST_NEXT - beside.len()));
        beside.sort_unstable();
        beside
    }

    /// The interim site at a return address from where a caller only returns, but to an address that has no site yet.
    /// It sees the return of a call that is running already, if all calls from there enter the same function.
    fn interim_site(&mut self, key: Key, met: (u32, u64)) -> Decision {
        let (pid, file, offset) = key;
        let is_wanted = self.direct.contains_key(&(file, offset)) && !self.known.contains_key(&key);
        match self.callers.at_return_address(file, offset) {
            Some(site) if is_wanted && self.before.is_none() => {
                let site = self.add_site(file, offset, pid, site, vec![met], true);
                Decision::Place(file, vec![site])
            }
            _ => Decision::Nothing,
        }
    }

    /// What the kernel side is to know of a return address to which nothing returns: no return goes undetected.
    pub(super) fn never_met(&self, file: FileId, offset: u64) -> ArrivalRule {
        let behind = Behind { back: self.callers.back(file, offset), is_fixed: self.is_fixed(file, offset) };
        ArrivalRule::Placed { behind, since: None, distance: None }
    }

    /// The same of one from which the code only returns, so many words higher.
    pub(super) fn skipped(&self, file: FileId, offset: u64, words: u32) -> ArrivalRule {
        ArrivalRule::Skip { words, is_fixed: self.is_fixed(file, offset) }
    }

    pub(super) fn is_fixed(&self, file: FileId, offset: u64) -> bool {
        self.direct.contains_key(&(file, offset))
    }
}

/// What becomes of an address where no file is in reach. If the process has ended, its calls were not timed because no site
/// was placed yet.
fn out_of_reach(pid: u32) -> Decision {
    if privilege::has_ended(pid) { Decision::Nothing } else { Decision::Answer(ArrivalRule::Impossible) }
}
