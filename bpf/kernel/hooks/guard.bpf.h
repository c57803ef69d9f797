/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps rtrace from recording what its user could not ptrace, though the kernel lets its probes in: programs that
 * run with another user's rights, with capabilities of their own, or that the user may execute and not read.
 *
 * The rules are those by which the kernel lets a caller without CAP_SYS_PTRACE attach to a process. They are asked at
 * each exec and at each hit, as credentials can change at any time. What is asked is read by BPF_CORE_READ: for each
 * pointer that a program loads itself, the verifier goes through all types of the kernel several times.
 */
#ifndef RTRACE_GUARD_H
#define RTRACE_GUARD_H

#include "maps.bpf.h"

#define MOST_NAMESPACES 33 /* the kernel lets user namespaces be nested so deep */
#define DUMPABLE 3 /* the bits of it among the flags of a memory */
#define DUMPABLE_BY_USER 1

/* Whether the user has made this namespace or one around it, and so may do all in it. */
static __always_inline bool owns(struct user_namespace *space)
{
	int i;

	for (i = 0; i < MOST_NAMESPACES && space; i++) {
		if (BPF_CORE_READ(space, level) <= 0)
			return false;
		if (BPF_CORE_READ(space, level) == 1)
			return BPF_CORE_READ(space, owner.val) == guard_user;
		space = BPF_CORE_READ(space, parent);
	}
	return false;
}

/* Whether the user may look at the memory of a program, as far as its file and its rights have set. */
static __always_inline bool is_open(struct task_struct *task)
{
	struct task_struct___state *later = (void *)task;
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct mm_struct___bits *bits = (void *)mm;
	u64 flags = 0;

	if (bpf_core_field_exists(later->exec_state))
		return BPF_CORE_READ(later, exec_state, dumpable) == TASK_DUMPABLE_OWNER ||
		       owns(BPF_CORE_READ(later, exec_state, user_ns));
	if (bpf_core_field_exists(bits->flags))
		bpf_core_read(&flags, sizeof(flags), &bits->flags);
	else
		bpf_core_read(&flags, sizeof(flags), &mm->flags);
	return (flags & DUMPABLE) == DUMPABLE_BY_USER || owns(BPF_CORE_READ(mm, user_ns));
}

static __always_inline bool has_rights_of_user(const struct cred *cred)
{
	u64 capabilities = 0;

	bpf_core_read(&capabilities, sizeof(capabilities), &cred->cap_permitted);
	return BPF_CORE_READ(cred, uid.val) == guard_user && BPF_CORE_READ(cred, euid.val) == guard_user &&
	       BPF_CORE_READ(cred, suid.val) == guard_user && BPF_CORE_READ(cred, gid.val) == guard_group &&
	       BPF_CORE_READ(cred, egid.val) == guard_group && BPF_CORE_READ(cred, sgid.val) == guard_group &&
	       !(capabilities & ~guard_capabilities);
}

/* Whether the user could ptrace the current process. Not static: the verifier looks at such a function once. */
__noinline u32 rt_may_observe(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct cred *cred;

	if (!guarded)
		return true;
	cred = BPF_CORE_READ(task, real_cred);
	if (!cred || !BPF_CORE_READ(task, mm))
		return false;
	return (has_rights_of_user(cred) || owns(BPF_CORE_READ(cred, user_ns))) && is_open(task);
}

#endif
