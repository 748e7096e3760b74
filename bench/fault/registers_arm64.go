package main

import "syscall"

// Source: the calling convention of system calls, syscall(2).

func callNumber(r *syscall.PtraceRegs) uint64 { return r.Regs[8] }

func firstArgument(r *syscall.PtraceRegs) int { return int(int32(r.Regs[0])) }

// spoil makes a call's descriptor none.
func spoil(r *syscall.PtraceRegs) { r.Regs[0] = ^uint64(0) }

// halve makes a write half as long.
func halve(r *syscall.PtraceRegs) { r.Regs[2] /= 2 }

func setResult(r *syscall.PtraceRegs, value int64) { r.Regs[0] = uint64(value) }
