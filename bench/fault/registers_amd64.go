package main

import "syscall"

// Source: the calling convention of system calls, syscall(2).

func callNumber(r *syscall.PtraceRegs) uint64 { return r.Orig_rax }

func firstArgument(r *syscall.PtraceRegs) int { return int(int32(r.Rdi)) }

// spoil makes a call's descriptor none.
func spoil(r *syscall.PtraceRegs) { r.Rdi = ^uint64(0) }

// halve makes a write half as long.
func halve(r *syscall.PtraceRegs) { r.Rdx /= 2 }

func setResult(r *syscall.PtraceRegs, value int64) { r.Rax = uint64(value) }
