//! Sorted addresses that are looked up very often.

/// Blocks per address, at most.
const BLOCKS: usize = 4;

/// Sorted addresses, with an index.
#[derive(Default)]
pub struct Addresses {
    sorted: Vec<u64>,
    /// The span is divided into blocks of so many bytes, as a power of two.
    shift: u32,
    /// For each block, and for what lies behind all, how many addresses stand before it.
    before: Vec<u32>,
}

impl Addresses {
    /// Sorts the addresses.
    pub fn new(mut addresses: Vec<u64>) -> Addresses {
        addresses.sort_unstable();
        let (Some(first), Some(last)) = (addresses.first(), addresses.last()) else { return Addresses::default() };
        let span = last - first;
        let most = (addresses.len() * BLOCKS) as u64;
        let shift = (0..u64::BITS).find(|&shift| span >> shift < most).unwrap_or(0);
        let mut before = vec![0; (span >> shift) as usize + 2];
        for address in &addresses {
            before[((address - first) >> shift) as usize + 1] += 1;
        }
        let mut sum = 0;
        for count in &mut before {
            sum += *count;
            *count = sum;
        }
        Addresses { sorted: addresses, shift, before }
    }

    /// How many of them are not above `address`.
    pub fn up_to(&self, address: u64) -> usize {
        let Some(distance) = self.sorted.first().and_then(|first| address.checked_sub(*first)) else { return 0 };
        let block = usize::try_from(distance >> self.shift).unwrap_or(usize::MAX);
        let (Some(&from), Some(&to)) = (self.before.get(block), self.before.get(block.saturating_add(1))) else {
            return self.sorted.len();
        };
        from as usize + self.sorted[from as usize..to as usize].partition_point(|&other| other <= address)
    }

    /// Whether `address` is one of them.
    pub fn contains(&self, address: u64) -> bool {
        self.up_to(address).checked_sub(1).is_some_and(|last| self.sorted[last] == address)
    }

    /// Those from `address` on.
    pub fn from(&self, address: u64) -> &[u64] {
        &self.sorted[address.checked_sub(1).map_or(0, |before| self.up_to(before))..]
    }

    /// All of them.
    pub fn all(&self) -> &[u64] {
        &self.sorted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_changes_nothing(
            near in prop::collection::vec(0x1000_u64..0x2000, 0..60),
            far in prop::collection::vec(any::<u64>(), 0..4),
            wanted in prop::collection::vec(0xfff_u64..0x2001, 1..60),
        ) {
            let mut sorted = [near, far].concat();
            let addresses = Addresses::new(sorted.clone());
            sorted.sort_unstable();
            for address in wanted.into_iter().chain([0, u64::MAX]).chain(sorted.clone()) {
                prop_assert_eq!(addresses.up_to(address), sorted.partition_point(|&other| other <= address));
                prop_assert_eq!(addresses.contains(address), sorted.contains(&address));
                let from = sorted.iter().copied().filter(|&other| other >= address).collect::<Vec<_>>();
                prop_assert_eq!(addresses.from(address), from);
            }
        }
    }
}
