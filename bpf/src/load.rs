//! Loads the programs, set up for one recording.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

use crate::check::entry_sums;
use crate::cpus::allowed_cpus;
use crate::kernel_types::{KernelTypes, Sees, SeesWriters};
use crate::mapped::Mapped;
use crate::programs::{Shared, put_ring};
use crate::skeleton::rtrace::{OpenRtraceSkel, RtraceSkel, RtraceSkelBuilder};
use crate::wire::{CountCode, Limit};
use crate::{Counter, Error, LoadOptions, MAX_COUNTERS, Mechanism, Programs};
use crate::{arrivals, contexts, fetch, governed, namespace, online_cpus, profile, watch};

impl Programs {
    /// Loads the programs and begins to follow the processes given to [`trace`](Programs::trace).
    /// Recording is off.
    ///
    /// # Errors
    /// [`Error::Load`] where the kernel refuses the programs: privileges or abilities are missing.
    pub fn load(options: &LoadOptions<'_>) -> Result<Programs, Error> {
        let load_error = |source| Error::Load { mechanism: options.mechanism.name(), source };
        let cpus = online_cpus()?;
        // The skeleton borrows its storage for as long as it lives; a process loads it a few times.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let types = KernelTypes::of_this_kernel();
        let builder = RtraceSkelBuilder::default();
        let mut open = builder.open(storage).map_err(load_error)?;
        select_programs(&mut open, options, &types);
        let sees_registers = types.sees_registers;
        open.progs.rt_registers.set_autoload(sees_registers);
        open.progs.rt_registers_again.set_autoload(sees_registers && options.mechanism == Mechanism::Multi);
        if let Some(profile) = &options.profile {
            profile::configure(&mut open, profile, !options.counters.is_empty()).map_err(load_error)?;
        }
        if options.is_governed {
            governed::configure(&mut open).map_err(load_error)?;
        }
        select_writers(&mut open, types.sees_writers);
        let most_waiting = match options.mechanism {
            Mechanism::Single => 0,
            _ => allowed_cpus()?.len().saturating_sub(1),
        };
        let constants = open.maps.rodata_data.as_mut().expect("the programs have read-only data");
        constants.id_namespace = namespace::of_ids();
        constants.follow_children = options.follow_children;
        constants.sees_exec_coming = types.sees_exec_coming != Sees::Not;
        constants.sees_exit_coming = types.sees_exit_coming != Sees::Not;
        constants.sees_registers = sees_registers;
        constants.probes_of_first_thread = options.mechanism == Mechanism::Single;
        constants.may_step = options.steps;
        constants.most_waiting = u32::try_from(most_waiting).unwrap_or(u32::MAX);
        constants.rt_words = options.words;
        constants.rt_counters = u32::try_from(options.counters.len().min(MAX_COUNTERS)).expect("a small number");
        for (source, counter) in constants.counter_sources.iter_mut().zip(options.counters) {
            *source = counter.code().0;
        }
        contexts::configure(&mut open, options.levels).map_err(load_error)?;
        fetch::configure(&mut open, options.words).map_err(load_error)?;
        watch::configure(&mut open, options.counters).map_err(load_error)?;
        let counts_per_cpu =
            |counter: &Counter| matches!(counter.code(), CountCode::RT_COUNT_EVENT | CountCode::RT_COUNT_CPU_TIME);
        let needs_switches = options.counters.iter().any(counts_per_cpu);
        open.progs.rt_switch.set_autoload(needs_switches);
        open.maps.site_hits.set_max_entries(arrivals::MAX_SITES).map_err(load_error)?;
        let possible = libbpf_rs::num_possible_cpus().map_err(load_error)?;
        let possible = u32::try_from(possible).unwrap_or(u32::MAX);
        open.maps.rings.set_max_entries(possible).map_err(load_error)?;
        let events = possible.saturating_mul(Limit::RT_COUNTERS.0);
        open.maps.counter_events.set_max_entries(events).map_err(load_error)?;
        let entries = possible.saturating_mul(entry_sums(options.is_governed));
        open.maps.entries_seen.set_max_entries(entries).map_err(load_error)?;
        open.maps.rodata_data.as_mut().expect("the programs have read-only data").entry_sums =
            entry_sums(options.is_governed);
        fit_tables(&mut open, types.fills_tables).map_err(load_error)?;
        let mut skel = open.load().map_err(load_error)?;
        let shared = Shared::of(&mut skel);
        let entries_seen =
            Mapped::of(&skel.maps.entries_seen, entries as usize).map_err(Error::kernel("map the table of entries"))?;
        let counts = Mapped::of(&skel.maps.counts, governed::counts(options.is_governed))
            .map_err(Error::kernel("map the table of counts"))?;

        let rings = cpus
            .into_iter()
            .map(|cpu| Ok((cpu, create_ring(&skel, cpu, options.ring_bytes)?)))
            .collect::<libbpf_rs::Result<Vec<_>>>()
            .map_err(Error::kernel("create a ring buffer"))?;
        install(&skel, options.counters).map_err(Error::kernel("hand a counter to the programs"))?;
        let progs = &skel.progs;
        let lifecycle = [&progs.rt_fork, &progs.rt_exec, &progs.rt_exit_task]
            .into_iter()
            .chain([&progs.rt_fork_again, &progs.rt_exec_again, &progs.rt_exit_task_again])
            .chain([&progs.rt_signal, &progs.rt_signal_again, &progs.rt_registers, &progs.rt_registers_again])
            .chain([&progs.rt_prepare_exec, &progs.rt_prepare_exec_again, &progs.rt_begin_exec, &progs.rt_begin_exit])
            .chain([&progs.rt_lock, &progs.rt_lock_again])
            .chain([
                &progs.rt_mprotect,
                &progs.rt_mprotect_again,
                &progs.rt_pkey_mprotect,
                &progs.rt_pkey_mprotect_again,
            ])
            .filter(|program| program.autoload())
            .chain(needs_switches.then_some(&progs.rt_switch))
            .map(|program| program.attach())
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::kernel("attach to the kernel's tracepoints"))?;
        Ok(Programs {
            skel,
            rings,
            mechanism: options.mechanism,
            counters: options.counters.len(),
            words: options.words as usize,
            levels: options.levels.min(contexts::MAX_LEVELS),
            is_profiled: options.profile.is_some(),
            is_governed: options.is_governed,
            may_wait: most_waiting > 0,
            shared,
            entries_seen,
            counts,
            calm: OnceLock::new(),
            journal: None,
            most_descriptors: usize::MAX,
            allowance: None,
            _lifecycle: lifecycle,
            clocks: Vec::new(),
        })
    }
}

/// What a hash table takes at most that has its memory before the programs fill it, in bytes.
const TABLE: u32 = 8 << 20;
/// What the kernel's own part of each entry takes, in bytes: `struct htab_elem` of kernel/bpf/hashtab.c.
const ENTRY: u32 = 48;
/// Entries that each such table has room for, whatever they take.
const FEWEST_ENTRIES: u32 = 256;

/// What the tables of loops are called, which only older kernels need (`repeat.bpf.h`).
const OF_LOOPS: &[u8] = b"steps_";

/// Where programs cannot make entries as they go, hash tables get their memory at once: then they are smaller.
fn fit_tables(open: &mut OpenRtraceSkel, fills_tables: bool) -> libbpf_rs::Result<()> {
    for mut map in open.open_object_mut().maps_mut() {
        if fills_tables && map.name().as_bytes().starts_with(OF_LOOPS) {
            map.set_autocreate(false)?;
        }
        if fills_tables || map.map_type() != MapType::Hash {
            continue;
        }
        let entry = ENTRY + map.key_size().next_multiple_of(8) + map.value_size().next_multiple_of(8);
        let most = map.max_entries().min(FEWEST_ENTRIES.max(TABLE / entry));
        map.set_max_entries(most)?;
        map.set_map_flags(0)?;
    }
    Ok(())
}

fn select_programs(open: &mut OpenRtraceSkel, options: &LoadOptions<'_>, types: &KernelTypes) {
    let progs = &mut open.progs;
    let follows = |seen: Sees, at: Sees| options.follow_children && seen == at;
    for program in [&mut progs.rt_prepare_exec, &mut progs.rt_prepare_exec_again] {
        program.set_autoload(follows(types.sees_exec_coming, Sees::Tracepoint));
    }
    progs.rt_begin_exec.set_autoload(follows(types.sees_exec_coming, Sees::Function));
    progs.rt_begin_exit.set_autoload(follows(types.sees_exit_coming, Sees::Function));
    progs.rt_look_at.set_autoload(options.follow_children);
    let multi = options.mechanism == Mechanism::Multi;
    for program in [&mut progs.rt_multi_enter, &mut progs.rt_multi_return] {
        program.set_autoload(multi);
    }
    // No kernel that needs these lacks such links.
    for program in [&mut progs.rt_fork_again, &mut progs.rt_exec_again, &mut progs.rt_exit_task_again] {
        program.set_autoload(multi);
    }
    progs.rt_signal_again.set_autoload(multi);
    for program in [&mut progs.rt_single_enter, &mut progs.rt_single_return] {
        program.set_autoload(!multi);
    }
}

fn select_writers(open: &mut OpenRtraceSkel, sees: SeesWriters) {
    let progs = &mut open.progs;
    for program in [&mut progs.rt_lock, &mut progs.rt_lock_again] {
        program.set_autoload(sees == SeesWriters::Locks);
    }
    let of_mprotect = [&mut progs.rt_mprotect, &mut progs.rt_mprotect_again];
    for program in of_mprotect.into_iter().chain([&mut progs.rt_pkey_mprotect, &mut progs.rt_pkey_mprotect_again]) {
        program.set_autoload(sees == SeesWriters::Calls);
    }
}

/// Lets the programs read the events of all CPUs.
fn install(skel: &RtraceSkel, counters: &[Counter]) -> libbpf_rs::Result<()> {
    for (index, counter) in (0_u32..).zip(counters) {
        let Counter::Event(events) = counter else { continue };
        for (cpu, event) in events {
            let place = cpu * Limit::RT_COUNTERS.0 + index;
            let fd = event.as_fd().as_raw_fd();
            skel.maps.counter_events.update(&place.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        }
    }
    Ok(())
}

fn create_ring(skel: &RtraceSkel, cpu: u32, bytes: u32) -> libbpf_rs::Result<MapHandle> {
    let size = bytes.max(4096).checked_next_power_of_two().unwrap_or(1 << 31);
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
    let ring = MapHandle::create(MapType::RingBuf, Some("rt_calls"), 0, 0, size, &options)?;
    put_ring(skel, cpu, &ring)?;
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_WATCHES, ProfileOptions};

    /// The verifier looks at each combination anew.
    #[test]
    fn the_kernel_takes_the_programs_with_any_number_of_counters() {
        let Ok(mechanism) = crate::best_mechanism() else {
            return println!("skipped: no mechanism works here");
        };
        let codes = (1..=6).map(CountCode);
        let kernel = codes.cycle().take(MAX_COUNTERS).map(Counter::Kernel);
        let events = std::iter::repeat_with(|| Counter::Event(Vec::new())).take(MAX_COUNTERS);
        let variables = std::iter::repeat_with(|| Counter::Accesses { size: 8, values: true }).take(MAX_WATCHES);
        let mixed = [Counter::Kernel(CountCode::RT_COUNT_CPU_TIME), Counter::Event(Vec::new())];
        let mixed = mixed.into_iter().chain(variables);
        let folding = Some(ProfileOptions { max_paths: 16, written_from: Some(1) });
        let steps = crate::may_step().is_ok();
        for counters in [Vec::new(), kernel.collect(), events.collect(), mixed.collect()] {
            for (profile, is_governed, words, levels) in [
                (None, false, 0, 0),
                (folding, false, 16, 0),
                (None, true, 3, 8),
                (folding, true, 0, 0),
                (None, false, 16, contexts::MAX_LEVELS),
                (folding, false, 0, 1),
            ] {
                let values = LoadOptions { words, levels, ..LoadOptions::plain(mechanism) };
                let options = LoadOptions { profile, counters: &counters, is_governed, steps, ..values };
                let loaded = Programs::load(&options).map(|programs| programs.counters());
                assert_eq!(loaded.map_err(|error| error.to_string()), Ok(counters.len()));
            }
        }
    }
}
