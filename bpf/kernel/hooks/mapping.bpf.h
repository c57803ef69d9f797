/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the running process has mapped at an address.
 *
 * bpf_find_vma() gives up where somebody changes the mappings, also by placing probes. Then the kernel's tree of
 * them is walked without its lock: `struct maple_tree` of include/linux/maple_tree.h, since Linux 6.1. Before, it is
 * `struct rb_root` of include/linux/rbtree_types.h, which is always walked, as bpf_find_vma() is not on all kernels. What
 * is read so may be changing, so it counts only where it is the same twice and holds the address.
 */
#ifndef RTRACE_MAPPING_H
#define RTRACE_MAPPING_H

#include "maps.bpf.h"

#define PAGE_SHIFT 12
#define MAPLE_PIVOTS 15
#define MAPLE_STEPS 40 /* some ways from the root to a mapping; 2^16 of them have five levels */

/* Whether the kernel's tree is the older one. */
#define HAS_RB bpf_core_field_exists(struct mm_struct, mm_rb)
#define RB_STEPS 64 /* twice as many as from the root to the last of 2^16 mappings */

/* Where the node of an entry is, and of which enum maple_type. */
#define MAPLE_NODE(entry) ((entry) & ~0xffull)
#define MAPLE_TYPE(entry) ((entry) >> 3 & 0xf)

static long see_mapping(struct task_struct *task, struct vm_area_struct *area, struct rt_mapping **looked_up)
{
	struct rt_mapping *found = *looked_up;

	found->start = area->vm_start;
	found->end = area->vm_end;
	found->offset = area->vm_pgoff << PAGE_SHIFT;
	found->file = (u64)area->vm_file;
	found->flags = area->vm_flags;
	return 0;
}

static __always_inline u64 read_word(u64 address)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

/* A node that was replaced points to itself, and holds what frees it. */
static __always_inline bool is_dead(u64 node)
{
	return MAPLE_NODE(read_word(node + bpf_core_field_offset(struct maple_range_64, parent))) == node;
}

/*
 * What a node of the tree has for an address: another node, or a mapping; 0: nothing, or the node was replaced
 * meanwhile. Not static, so that the verifier looks at it once.
 */
__noinline u64 maple_child(u64 entry, u64 address)
{
	u64 pivots, slots, size, pivot, child, i;

	if (HAS_RB)
		return 0;
	/* Else clang does first what comes after. */
	barrier_var(entry);
	if (MAPLE_TYPE(entry) != maple_arange_64) {
		pivots = bpf_core_field_offset(struct maple_range_64, pivot);
		slots = bpf_core_field_offset(struct maple_range_64, slot);
		size = bpf_core_field_size(struct maple_range_64, pivot);
	} else {
		pivots = bpf_core_field_offset(struct maple_arange_64, pivot);
		slots = bpf_core_field_offset(struct maple_arange_64, slot);
		size = bpf_core_field_size(struct maple_arange_64, pivot);
	}
	for (i = 0; i < MAPLE_PIVOTS && i * sizeof(u64) < size; i++) {
		pivot = read_word(MAPLE_NODE(entry) + pivots + i * sizeof(u64));
		/* The last one may be left out. */
		if (address <= pivot || (i && !pivot))
			break;
	}
	child = read_word(MAPLE_NODE(entry) + slots + i * sizeof(u64));
	return is_dead(MAPLE_NODE(entry)) ? 0 : child;
}

static __always_inline u64 maple_root(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (u64)BPF_CORE_READ(task, mm, mm_mt.ma_root);
}

/* Reads a mapping without the lock. Returns whether it holds the address. */
static __always_inline bool read_mapping(struct vm_area_struct *area, u64 address, struct rt_mapping *found)
{
	found->start = BPF_CORE_READ(area, vm_start);
	found->end = BPF_CORE_READ(area, vm_end);
	found->offset = BPF_CORE_READ(area, vm_pgoff) << PAGE_SHIFT;
	found->file = (u64)BPF_CORE_READ(area, vm_file);
	found->flags = BPF_CORE_READ(area, vm_flags);
	return address - found->start < found->end - found->start && BPF_CORE_READ(area, vm_start) == found->start &&
	       BPF_CORE_READ(area, vm_end) == found->end;
}

/*
 * The mapping that holds an address, in the tree of older kernels; 0: there is none, or not at this moment. Not static, so
 * that the verifier looks at it once.
 */
__noinline u64 rb_mapping(u64 address)
{
	struct mm_struct *memory = BPF_CORE_READ(bpf_get_current_task_btf(), mm);
	struct rb_node *root, *node;
	int i;

	if (!HAS_RB)
		return 0;
	root = node = BPF_CORE_READ(memory, mm_rb.rb_node);
	for (i = 0; i < RB_STEPS; i++) {
		struct vm_area_struct *area = (void *)node - bpf_core_field_offset(struct vm_area_struct, vm_rb);

		/* It is changing there: once more. */
		if (!node || BPF_CORE_READ(area, vm_mm) != memory)
			node = root;
		else if (address >= BPF_CORE_READ(area, vm_end))
			node = BPF_CORE_READ(node, rb_right);
		else if (address < BPF_CORE_READ(area, vm_start))
			node = BPF_CORE_READ(node, rb_left);
		else
			return (u64)area;
	}
	return 0;
}

/* Looks up what the process of the running thread has mapped at an address. Returns whether it has. */
static __always_inline bool find_mapping(struct rt_mapping *found, u64 address)
{
	int i, is_leaf;
	u64 entry;
	long error;

	if (HAS_RB) {
		entry = rb_mapping(address);
		return entry && read_mapping((struct vm_area_struct *)entry, address, found);
	}
	error = bpf_find_vma(bpf_get_current_task_btf(), address, see_mapping, &found, 0);
	if (error != -EBUSY)
		return !error;
	entry = maple_root();
	for (i = 0; i < MAPLE_STEPS; i++) {
		is_leaf = MAPLE_TYPE(entry) <= maple_leaf_64;
		entry = maple_child(entry, address);
		if (entry && !is_leaf)
			continue;
		if (entry && read_mapping((struct vm_area_struct *)entry, address, found))
			return true;
		/* It is changing there: once more. */
		entry = maple_root();
	}
	return false;
}

#endif
