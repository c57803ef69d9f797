/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef RTRACE_SESSION_H
#define RTRACE_SESSION_H

/* The kfunc's prototype changed in Linux 7.0. */
extern bool bpf_session_is_return___v6(void) __ksym __weak;
extern bool bpf_session_is_return___v7(void *ctx) __ksym __weak;

/* Whether a session program runs for the return rather than for the entry. */
static __always_inline bool is_return(struct pt_regs *ctx)
{
	if (bpf_ksym_exists(bpf_session_is_return___v6))
		return bpf_session_is_return___v6();
	return bpf_session_is_return___v7(ctx);
}

#endif
