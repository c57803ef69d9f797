/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The little of the kernel's types that the programs name. Fields are found at load time through
 * BTF (CO-RE), so only names and types matter here, not layout.
 */
#ifndef RTRACE_KERNEL_H
#define RTRACE_KERNEL_H

#include "rtrace.h"

typedef signed char __s8;
typedef u8 __u8;
typedef short __s16;
typedef u16 __u16;
typedef int __s32;
typedef u32 __u32;
typedef long long __s64;
typedef u64 __u64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;

enum { false = 0, true = 1 };

#define EBUSY 16

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

enum {
	SIGILL = 4,
	SIGTRAP = 5,
	SIGBUS = 7,
	SIGFPE = 8,
	SIGSEGV = 11,
};

enum task_dumpable {
	TASK_DUMPABLE_OFF,
	TASK_DUMPABLE_OWNER,
	TASK_DUMPABLE_ROOT,
};

enum maple_type {
	maple_dense,
	maple_leaf_64,
	maple_range_64,
	maple_arange_64,
};

/* x86-64; the layout is part of the user ABI. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct bpf_perf_event_value {
	u64 counter;
	u64 enabled;
	u64 running;
};

/* What a program of a performance event is given; the kernel translates accesses to it. */
struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct return_instance {
	struct return_instance *next;
	unsigned long orig_ret_vaddr;
	unsigned long stack;
};

struct uprobe_task {
	struct return_instance *return_instances;
	void *active_uprobe;
};

struct super_block {
	u32 s_dev;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct file {
	struct inode *f_inode;
};

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

typedef struct {
	u64 val;
} kernel_cap_t;

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
};

struct cred {
	kuid_t uid;
	kgid_t gid;
	kuid_t suid;
	kgid_t sgid;
	kuid_t euid;
	kgid_t egid;
	kernel_cap_t cap_permitted;
	struct user_namespace *user_ns;
};

struct maple_tree {
	void *ma_root;
};

struct maple_range_64 {
	struct maple_pnode *parent;
	unsigned long pivot[15];
	void *slot[16];
};

struct maple_arange_64 {
	unsigned long pivot[9];
	void *slot[10];
};

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct mm_struct {
	struct maple_tree mm_mt;
	struct rb_root mm_rb; /* until Linux 6.1 */
	unsigned long start_stack;
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long flags;
	struct user_namespace *user_ns;
	struct uprobes_state uprobes_state;
};

typedef struct {
	unsigned long words[1];
} mm_flags_t;

/* Since Linux 6.18. */
struct mm_struct___bits {
	mm_flags_t flags;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_pgoff;
	unsigned long vm_flags;
	struct file *vm_file;
	struct mm_struct *vm_mm;
	struct rb_node vm_rb;
};

struct thread_struct {
	unsigned long fsbase;
	unsigned long features;
};

/* Of Linux 7.2, in place of the flags and of the namespace of a memory. */
struct task_exec_state {
	enum task_dumpable dumpable;
	struct user_namespace *user_ns;
};

struct task_struct___state {
	struct task_exec_state *exec_state;
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

struct uprobe_consumer {
	struct list_head cons_node;
};

struct bpf_uprobe {
	struct uprobe_consumer consumer;
};

struct bpf_run_ctx;

struct bpf_uprobe_multi_run_ctx {
	struct bpf_uprobe *uprobe;
};

typedef struct {
	int counter;
} atomic_t;

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/* The second of `enum pid_type`. */
#define PIDTYPE_TGID 1

struct signal_struct {
	struct pid *pids[PIDTYPE_TGID + 1];
	atomic_t live;
	int group_exit_code;
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 nr_migrations;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	u64 start_time;
	u64 self_exec_id;
	unsigned long min_flt;
	unsigned long maj_flt;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_entity se;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	const struct cred *real_cred;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct thread_struct thread;
	struct bpf_run_ctx *bpf_ctx;
	struct uprobe_task *utask;
	char comm[RT_COMM_LEN];
};

struct perf_event {
	struct perf_event *parent;
};

/* What the kernel has in place of struct bpf_perf_event_data. */
struct bpf_perf_event_data_kern {
	struct perf_event *event;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

struct linux_binprm;

#endif
