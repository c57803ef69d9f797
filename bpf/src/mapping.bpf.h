/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the running process has mapped at an address.
 *
 * bpf_find_vma() gives up where somebody changes the mappings, also by placing probes. Then the kernel's tree of
 * them is walked without its lock: `struct maple_tree` of include/linux/maple_tree.h, since Linux 6.1. What is
 * read so may be changing, so it counts only where it is the same twice and holds the address.
 */
#ifndef RTRACE_MAPPING_H
#define RTRACE_MAPPING_H

#include "maps.bpf.h"

#define PAGE_SHIFT 12
#define MAPLE_LEVELS 8 /* more than hold 2^16 mappings */
#define MAPLE_PIVOTS 15

/* Where the node of an entry is, and of which enum maple_type. */
#define MAPLE_NODE(entry) ((entry) & ~0xffull)
#define MAPLE_TYPE(entry) ((entry) >> 3 & 0xf)

static long see_mapping(struct task_struct *task, struct vm_area_struct *area, struct rt_thread **thread)
{
	struct rt_mapping *found = &(*thread)->looked_up;

	found->start = area->vm_start;
	found->end = area->vm_end;
	found->offset = area->vm_pgoff << PAGE_SHIFT;
	found->file = (u64)area->vm_file;
	return 0;
}

static __always_inline u64 read_word(u64 address)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

/* What a node of the tree has for an address: another node, or a mapping. Not static, as first_arrival(). */
__noinline u64 maple_child(u64 entry, u64 address)
{
	int is_ranges = MAPLE_TYPE(entry) != maple_arange_64;
	u64 pivots = is_ranges ? bpf_core_field_offset(struct maple_range_64, pivot) :
				 bpf_core_field_offset(struct maple_arange_64, pivot);
	u64 slots = is_ranges ? bpf_core_field_offset(struct maple_range_64, slot) :
				bpf_core_field_offset(struct maple_arange_64, slot);
	u64 size = is_ranges ? bpf_core_field_size(struct maple_range_64, pivot) :
			       bpf_core_field_size(struct maple_arange_64, pivot);
	u64 pivot, i;

	for (i = 0; i < MAPLE_PIVOTS && i * sizeof(u64) < size; i++) {
		pivot = read_word(MAPLE_NODE(entry) + pivots + i * sizeof(u64));
		/* The last one may be left out. */
		if (address <= pivot || (i && !pivot))
			break;
	}
	return read_word(MAPLE_NODE(entry) + slots + i * sizeof(u64));
}

/* The mapping at an address, as far as can be seen without the lock. */
static __always_inline struct vm_area_struct *walk_mappings(struct task_struct *task, u64 address)
{
	u64 entry = (u64)BPF_CORE_READ(task, mm, mm_mt.ma_root);
	int i, is_leaf;

	for (i = 0; i < MAPLE_LEVELS && entry; i++) {
		is_leaf = MAPLE_TYPE(entry) <= maple_leaf_64;
		entry = maple_child(entry, address);
		if (is_leaf)
			return (struct vm_area_struct *)entry;
	}
	return 0;
}

/* What the process of the running thread has mapped at an address; null: nothing. */
static __always_inline struct rt_mapping *find_mapping(struct rt_thread *thread, u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_mapping *found = &thread->looked_up;
	struct vm_area_struct *area;
	long error = bpf_find_vma(task, address, see_mapping, &thread, 0);

	if (error != -EBUSY)
		return error ? 0 : found;
	area = walk_mappings(task, address);
	if (!area)
		return 0;
	found->start = BPF_CORE_READ(area, vm_start);
	found->end = BPF_CORE_READ(area, vm_end);
	found->offset = BPF_CORE_READ(area, vm_pgoff) << PAGE_SHIFT;
	found->file = (u64)BPF_CORE_READ(area, vm_file);
	if (BPF_CORE_READ(area, vm_start) != found->start || BPF_CORE_READ(area, vm_end) != found->end)
		return 0;
	return address - found->start < found->end - found->start ? found : 0;
}

#endif
