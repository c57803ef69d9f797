//! Whether return sites are worth their hits: those that mostly see returns of calls that nobody traces are moved or
//! taken out, and brought back once calls from there have been missed.
//!
//! Places no site for the first time.

use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Instant;

use foldhash::{HashMap, HashMapExt as _};
use rtrace_bpf::wire::SiteHitsRecord;
use rtrace_bpf::{ArrivalRule, Error, Since};
use rtrace_code::arrival;

use super::hold::Hold;
use super::links::Placement;
use super::site::place_of;
use super::{Dropped, Exchange, FileId, Key, Placed, ReturnSites, Seen};
use crate::host;

/// Hits in vain that are tolerated, as a part of those that end a call.
const MOST_IN_VAIN: f64 = 0.12;

/// Where there are more, a return is worth this many of them at its site.
const MOST_FOR_A_RETURN: u64 = 20;

/// A single step costs as much as this many hits, at the least.
const STEP_IN_HITS: u64 = 8;

/// Hits in vain of a site that are worth no thought, and calls that are missed before it comes back, at the least.
const FEW: u64 = 100;

/// How often an interim site is placed at an address.
const MOST_INTERIM: u32 = 8;

/// The same two where functions were throttled: all sites of those are hit in vain, and each hit counts.
const MOST_FOR_A_RETURN_WHEN_THROTTLED: u64 = 2;
const FEW_WHEN_THROTTLED: u64 = 8;

/// Nanoseconds of the program that cost as much as one more hit: where stacks are deep, or threads have several, a
/// hit in vain takes some microseconds.
const HIT_TIME: u64 = 500;

impl<'a> ReturnSites<'a> {
    /// Other functions are recorded than before: what sites were hit for tells nothing any more. Those that were
    /// taken out come back once calls from there have been missed.
    pub(super) fn begin_anew(&mut self) -> Result<(), Error> {
        self.before = Some(self.hits.read(self.count()).collect());
        self.gone.values_mut().for_each(|seen| *seen = Seen { since: seen.since, ..Seen::default() });
        let after = self.calls_to_miss(Seen::default());
        self.dropped.values_mut().for_each(|dropped| dropped.after = after);
        self.dropped.values().try_for_each(|dropped| self.tell_dropped(&dropped.addresses, after))
    }

    /// The kernel side is to ask about these addresses after so many more calls from each.
    fn tell_dropped(&self, addresses: &[(u32, u64)], after: u32) -> Result<(), Error> {
        let tell = |&(space, address)| self.programs.set_arrivals(space, &[(address, ArrivalRule::Dropped { after })]);
        addresses.iter().try_for_each(tell)
    }

    /// How many calls have to be missed before a place that has seen this is worth a site.
    ///
    /// As many as outweigh the hits in vain. Where nothing is throttled fewer do at first, twice as many each time: a
    /// sort that others have called for long calls back to traced functions for as long at once.
    fn calls_to_miss(&self, seen: Seen) -> u32 {
        let missing = |most: u64| seen.unmatched.div_ceil(most).saturating_sub(seen.returns);
        let calls = match self.before {
            Some(_) => missing(MOST_FOR_A_RETURN_WHEN_THROTTLED).max(FEW_WHEN_THROTTLED),
            None => missing(MOST_FOR_A_RETURN).clamp(FEW, FEW << seen.times.saturating_sub(1).min(u32::BITS)),
        };
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// Whether there may be a site at a place of which the kernel side asks at an address of a space. If one was taken
    /// out there, enough calls have been missed.
    pub(super) fn may_come_back(&mut self, key: Key, address: (u32, u64)) -> Result<bool, Error> {
        let Some(dropped) = self.dropped.get_mut(&key) else { return Ok(true) };
        dropped.is_wanted = self.held.get(&key).is_some_and(|hold| !hold.is_over(Instant::now()));
        if dropped.is_wanted {
            if !dropped.addresses.contains(&address) {
                dropped.addresses.push(address);
            }
            return Ok(false);
        }
        self.bring_back(key)?;
        Ok(true)
    }

    /// The kernel side is to ask about a place where a site was taken out.
    fn bring_back(&mut self, key: Key) -> Result<(), Error> {
        let Some(Dropped { addresses, after, .. }) = self.dropped.remove(&key) else { return Ok(()) };
        if let Some(seen) = self.gone.get_mut(&key) {
            seen.returns += u64::from(after);
        }
        self.programs.forget_arrival(place_of(key), &addresses)
    }

    /// Brings back sites that were wanted while they had to stay away.
    pub(super) fn revive(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let is_over = |key: &Key| self.held.get(key).is_none_or(|hold| hold.is_over(now));
        let wanted = self.dropped.iter().filter(|(key, dropped)| dropped.is_wanted && is_over(key));
        let back: Vec<Key> = wanted.map(|(key, _)| *key).collect();
        back.into_iter().try_for_each(|key| self.bring_back(key))
    }

    /// Tells the governor how many hits were in vain.
    fn tell(&self, exchange: &Exchange) {
        let (mut spent, mut in_vain, mut stepped) = (0, 0, 0);
        for (hits, placed) in self.hits.read(self.count()).zip(&self.placed) {
            spent += hits.spent;
            in_vain += hits.unmatched;
            stepped += if placed.is_stepped() { hits.unmatched } else { 0 };
        }
        exchange.spent_in_vain.store(spent, Ordering::Relaxed);
        exchange.in_vain.store(in_vain, Ordering::Relaxed);
        exchange.stepped_in_vain.store(stepped, Ordering::Relaxed);
    }

    /// The hits of each site since levels last changed.
    fn recent(&self) -> impl Iterator<Item = SiteHitsRecord> {
        let before = self.before.iter().flatten().copied().chain(std::iter::repeat(SiteHitsRecord::default()));
        self.hits.read(self.count()).zip(before).map(|(hits, before)| SiteHitsRecord {
            matched: hits.matched.saturating_sub(before.matched),
            unmatched: hits.unmatched.saturating_sub(before.unmatched),
            spent: hits.spent.saturating_sub(before.spent),
            ..hits
        })
    }

    /// What the hits in vain of a site cost, in hits.
    fn vain_cost(&self, id: u32, hits: &SiteHitsRecord) -> u64 {
        let of_one = if self.placed[id as usize].is_stepped() { 1 + STEP_IN_HITS } else { 1 };
        match self.before {
            Some(_) => hits.unmatched * of_one + hits.spent / HIT_TIME,
            None => hits.unmatched,
        }
    }

    /// Moves or takes out sites that are mostly hit in vain, and makes one link of many small ones.
    pub(super) fn tidy<'s>(&mut self, scope: &'s Scope<'s, '_>, exchange: &Exchange) -> Result<(), Error>
    where
        'a: 's,
    {
        self.tell(exchange);
        let wasteful = self.wasteful();
        let mut moved: HashMap<(u32, FileId), Vec<Placement>> = HashMap::new();
        for &(id, hits) in &wasteful {
            let Placed { file, offset, pid, .. } = self.placed[id as usize];
            // Others come to the site by another way; to the return address they do not.
            let at_address = self.callers.at_return_address(file, offset);
            match at_address.filter(|_| self.can_move(id)) {
                Some(site) => {
                    let met = self.placed[id as usize].met.clone();
                    moved.entry((pid, file)).or_default().push(self.add(file, offset, pid, site, met));
                }
                None => self.drop(id, hits)?,
            }
        }
        for ((pid, file), sites) in moved {
            let Some(path) = self.callers.path(file) else { continue };
            match self.link(pid, file, &path, &sites) {
                Err(error) if error.is_gone() => {}
                refused => {
                    for id in refused? {
                        self.drop(id, SiteHitsRecord::default())?;
                    }
                }
            }
        }
        let out: Vec<u32> = wasteful.into_iter().map(|(id, _)| id).collect();
        self.links.tidy(scope, &out);
        Ok(())
    }

    /// The sites that are hit in vain too often, with their hits since levels last changed.
    ///
    /// One that others come to by another way is to be moved, where a single step for each return costs less
    /// than these hits. One that detects the returns of other functions is kept, unless all hits in vain
    /// together are too many. One to which control may come twice also tells which calls a jump has ended, so it is
    /// kept unless functions were throttled: some programs come there tens of thousands of times a second.
    fn wasteful(&self) -> Vec<(u32, SiteHitsRecord)> {
        let is_placed = |(id, _): &(u32, SiteHitsRecord)| self.known.get(&self.placed[*id as usize].key()) == Some(id);
        let are_hit = |(_, hits): &(u32, SiteHitsRecord)| hits.matched + hits.unmatched > 0;
        let hit: Vec<(u32, SiteHitsRecord)> = (0..).zip(self.recent()).filter(are_hit).filter(is_placed).collect();
        let matched: u64 = hit.iter().map(|(_, hits)| hits.matched).sum();
        let unmatched: u64 = hit.iter().map(|(_, hits)| hits.unmatched).sum();
        let are_too_many = unmatched as f64 > MOST_IN_VAIN * matched as f64;
        let is_wasteful = |(id, hits): &(u32, SiteHitsRecord)| {
            let placed = &self.placed[*id as usize];
            if placed.is_interim {
                return hits.matched + hits.unmatched >= FEW;
            }
            let seen = self.gone.get(&placed.key()).copied().unwrap_or_default();
            let (few, most) = match self.can_move(*id) {
                true => (FEW, STEP_IN_HITS),
                false if self.before.is_some() => (FEW_WHEN_THROTTLED, MOST_FOR_A_RETURN_WHEN_THROTTLED),
                false if are_too_many => (FEW, MOST_FOR_A_RETURN),
                false => return false,
            };
            let cost = self.vain_cost(*id, hits);
            cost >= few
                && cost + seen.unmatched > most * (hits.matched + seen.returns)
                && (self.before.is_some() || !self.returns_twice(placed))
        };
        hit.into_iter().filter(is_wasteful).collect()
    }

    /// Whether control may come twice to the return address of a site.
    fn returns_twice(&self, placed: &Placed) -> bool {
        self.callers.returns_twice(placed.file, placed.offset).contains(&placed.offset)
    }

    /// Whether hits in vain at the site can only be of others that come to it by another way. Once levels have
    /// changed, the calls from there may go untraced: moved, each of them would be a single step.
    fn can_move(&self, id: u32) -> bool {
        let Placed { site, is_fixed, .. } = self.placed[id as usize];
        is_fixed && site.distance > 0 && self.before.is_none()
    }

    /// An interim site has seen more calls than begin before the site of their caller is there. It may be asked for
    /// again, a few times.
    fn end_interim(&mut self, id: u32) -> Result<(), Error> {
        let placed = &self.placed[id as usize];
        let key = placed.key();
        let arrival = self.callers.arrival(placed.file, placed.offset, self.read_at(placed.file, placed.offset));
        let seen = self.gone.entry(key).or_default();
        seen.times += 1;
        match arrival {
            arrival::Arrival::Skip { words } if seen.times < MOST_INTERIM => {
                let rule = self.skipped(key.1, key.2, words);
                let tell = |&(space, address)| self.programs.set_arrivals(space, &[(address, rule)]);
                placed.met.iter().try_for_each(tell)
            }
            _ => Ok(()),
        }
    }

    /// Returns to the address of a site, which has seen these hits, are not detected from now on.
    fn drop(&mut self, id: u32, hits: SiteHitsRecord) -> Result<(), Error> {
        self.forget(id);
        if self.placed[id as usize].is_interim {
            return self.end_interim(id);
        }
        let cost = self.vain_cost(id, &hits);
        let placed = &self.placed[id as usize];
        let (key, place, met) = (placed.key(), placed.place(), placed.met.clone());
        let (pid, file, offset) = key;
        let mut seen = self.gone.get(&key).copied().unwrap_or_default();
        seen.returns += hits.matched;
        seen.unmatched += cost;
        seen.times += 1;
        let after = self.calls_to_miss(seen);
        self.programs.prime(&[(place, ArrivalRule::Dropped { after })])?;
        // Frames that enter from now on are in doubt, and so are those that turn out to be left.
        let addresses = match met.is_empty() {
            true => self.spaces.addresses(pid, self.programs.space(pid)?, file, offset),
            false => met,
        };
        self.tell_dropped(&addresses, after)?;
        // What entered before this was told is in no doubt yet.
        self.gone.insert(key, Seen { since: Some(Since::new(host::now().0)), ..seen });
        self.dropped.insert(key, Dropped { addresses, after, is_wanted: false });
        if self.before.is_some() {
            let before = self.held.get(&key).copied();
            self.held.insert(key, Hold::after(before, Instant::now()));
        }
        Ok(())
    }
}
