//! Calls that are worth a window: `deflate > 50ms`, or every call of a function.

use std::str::FromStr;

use rtrace_model::{Call, Ending, Region};
use rtrace_plan::{Pattern, PatternError};

/// Calls of some functions, all or those that take longer.
#[derive(Clone, Debug)]
pub struct Trigger {
    text: String,
    function: String,
    pattern: Pattern,
    longer_than: Option<u64>,
}

/// A trigger that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// Which functions is not clear.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// How long is not clear.
    #[error("failed to read the time `{text}`: {reason}")]
    Time {
        /// What follows the `>`.
        text: String,
        /// Why.
        reason: String,
    },
}

impl Trigger {
    /// Reads `PATTERN`, or `PATTERN > TIME`, where `time` reads a time in nanoseconds.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str, time: impl Fn(&str) -> Result<u64, String>) -> Result<Trigger, TriggerError> {
        // Names of C++ may hold a `>`: no digit follows it there, and no blank comes before it but in `> >`.
        let is_limit = |&(pattern, limit): &(&str, &str)| {
            let is_apart = pattern.ends_with(char::is_whitespace) && !pattern.trim_end().ends_with('>');
            is_apart || limit.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '.')
        };
        let (pattern, longer_than) = match text.rsplit_once('>').filter(is_limit) {
            Some((pattern, limit)) => {
                let (pattern, limit) = (pattern.trim(), limit.trim());
                let error = |reason| TriggerError::Time { text: limit.to_owned(), reason };
                (pattern, Some(time(limit).map_err(error)?))
            }
            None => (text.trim(), None),
        };
        let (text, function) = (text.trim().to_owned(), pattern.to_owned());
        Ok(Trigger { text, function, pattern: Pattern::from_str(pattern)?, longer_than })
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern of its functions.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// Whether it asks for calls of this function.
    pub fn is_about(&self, region: &Region) -> bool {
        let mut names = [&region.name].into_iter().chain(region.symbols.iter().map(|name| &name.symbol));
        names.any(|name| self.pattern.matches(name))
    }
}

/// The triggers of a recording, by function.
#[derive(Debug, Default)]
pub struct Triggers {
    triggers: Vec<Trigger>,
    /// For each region the trigger that is met first, and from which duration on; 0 is any call.
    by_region: Vec<Option<(usize, u64)>>,
    /// Whether a function has been found for each.
    found: Vec<bool>,
}

impl Triggers {
    /// No function is known yet.
    pub fn new(triggers: Vec<Trigger>) -> Triggers {
        Triggers { found: vec![false; triggers.len()], triggers, by_region: Vec::new() }
    }

    /// A function may be called from now on.
    pub fn learn(&mut self, region: &Region) {
        let mut first = None;
        for (place, trigger) in self.triggers.iter().enumerate().filter(|(_, trigger)| trigger.is_about(region)) {
            self.found[place] = true;
            let from = trigger.longer_than.map_or(0, |limit| limit.saturating_add(1));
            if first.is_none_or(|(_, least)| from < least) {
                first = Some((place, from));
            }
        }
        if first.is_some() {
            let length = self.by_region.len().max(region.id.index() + 1);
            self.by_region.resize(length, None);
            self.by_region[region.id.index()] = first;
        }
    }

    /// The trigger that a call meets, one that still runs by its time until now.
    pub fn met(&self, call: &Call) -> Option<&Trigger> {
        let &(place, from) = self.by_region.get(call.region.index())?.as_ref()?;
        let is_met = from == 0 || call.duration.is_some_and(|duration| duration >= from);
        // One that asks for any call is met once: when the call ends.
        (is_met && (from > 0 || call.ending != Ending::Open)).then(|| &self.triggers[place])
    }

    /// Triggers that no function has matched.
    pub fn without_function(&self) -> impl Iterator<Item = &Trigger> {
        self.triggers.iter().zip(&self.found).filter(|&(_, &found)| !found).map(|(trigger, _)| trigger)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::RegionId;

    use super::*;

    fn trigger(text: &str) -> Result<Trigger, TriggerError> {
        let time = |text: &str| {
            let number = text.strip_suffix("ms").ok_or("a unit is missing")?;
            number.parse::<u64>().map(|ms| ms * 1_000_000).map_err(|error| error.to_string())
        };
        Trigger::parse(text, time)
    }

    fn region(id: u32, name: &str) -> Region {
        Region { id: RegionId(id), name: name.to_owned(), ..Region::default() }
    }

    fn call(region: u32, duration: Option<u64>) -> Call {
        let ending = if duration.is_some() { Ending::Returned } else { Ending::Unseen };
        Call { region: RegionId(region), duration, ending, ..Call::default() }
    }

    #[test]
    fn a_time_follows_the_last_sign() {
        let parts = |text| trigger(text).map(|trigger| (trigger.longer_than, trigger.pattern));
        assert_eq!(parts("fftw_execute > 50ms").unwrap().0, Some(50_000_000));
        assert_eq!(parts(" fftw_execute>50ms ").unwrap().0, Some(50_000_000));
        assert!(parts("fftw_execute>50ms").unwrap().1.matches("fftw_execute"));
        let (limit, pattern) = parts("std::vector<int>::push_back").unwrap();
        assert!(limit.is_none() && pattern.matches("std::vector<int>::push_back"));
        let (limit, pattern) = parts("std::less<int>::less > 1ms").unwrap();
        assert!(limit == Some(1_000_000) && pattern.matches("std::less<int>::less"));
        assert!(parts("f(std::list<std::less<int> >)").unwrap().0.is_none());
        for text in ["", " > 5ms", "f > 5", "f > 5 lightyears", "f >", "f >= 5ms", "f > ms", "re:( > 5ms"] {
            assert!(trigger(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_trigger_that_is_met_first_decides() {
        let mut triggers =
            Triggers::new(["slow* > 5ms", "slow_one > 2ms", "any", "none"].map(|text| trigger(text).unwrap()).into());
        triggers.learn(&region(3, "slow_one"));
        triggers.learn(&region(1, "slow_two"));
        triggers.learn(&region(2, "any"));
        let met = |call| triggers.met(&call).map(Trigger::text);
        assert_eq!(met(call(3, Some(2_000_000))), None);
        assert_eq!(met(call(3, Some(2_000_001))), Some("slow_one > 2ms"));
        assert_eq!(met(call(1, Some(5_000_001))), Some("slow* > 5ms"));
        assert_eq!(met(call(1, None)), None, "how long it took is not known");
        assert_eq!(met(call(2, None)), Some("any"));
        assert_eq!(met(call(0, Some(u64::MAX))), None);
        assert_eq!(met(call(9, Some(u64::MAX))), None);
        let open = |region| Call { ending: Ending::Open, ..call(region, Some(6_000_000)) };
        assert_eq!((met(open(1)), met(open(2))), (Some("slow* > 5ms"), None));
        assert_eq!(triggers.without_function().map(Trigger::text).collect::<Vec<_>>(), ["none"]);
    }
}
