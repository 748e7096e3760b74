package keyring

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// New keys are made again and again, as by a person whose command was killed, before an operator has
// signed any: the pair in force stays, and so do those that may still be signed.
func TestFleetKeepsTheKeysInForce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	var made []*Fleet
	add := func(inForce int) {
		t.Helper()
		var key []byte
		if inForce >= 0 {
			key, _ = made[inForce].Public()
		}
		keys, err := AddFleet(dir, rand.Reader, key)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, keys)
	}
	has := func(i int) bool {
		t.Helper()
		all, err := ReadFleet(dir)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := made[i].Public()
		for _, one := range all {
			if sign, _ := one.Public(); bytes.Equal(sign, want) {
				return true
			}
		}
		return false
	}
	add(-1)
	for range 3 {
		add(0)
	}
	for i := range made {
		if !has(i) {
			t.Errorf("pair %d is gone", i)
		}
	}
	add(2)
	if has(0) || has(1) || !has(2) || !has(3) || !has(4) {
		t.Error("after a pair is in force, those before it stay, or it or a later one is gone")
	}
	for range 2 * maxPairs {
		add(2)
	}
	if all, err := ReadFleet(dir); err != nil || len(all) != maxPairs || !has(2) || !has(len(made)-1) {
		t.Errorf("%d pairs are kept, %v", len(all), err)
	}
}

// A command that makes new keys is killed after any byte that it has written, before or after the file has its
// name: the host has the former keys or the former and the new ones, and the command works again.
func TestFleetKeysOverKills(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	first, err := AddFleet(dir, rand.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	inForce, _ := first.Public()
	file := filepath.Join(dir, fleetFile)
	former, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddFleet(dir, rand.Reader, inForce); err != nil {
		t.Fatal(err)
	}
	next, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for written := range 2*len(next) + 1 {
		named, pairs := former, 1
		if written > len(next) { // it was renamed, and the command was killed before it printed anything
			named, pairs = next, 2
		}
		if err := errors.Join(os.WriteFile(file, named, secretMode), os.WriteFile(file+partSuffix, next[:written%(len(next)+1)], secretMode)); err != nil {
			t.Fatal(err)
		}
		has := func(want int) {
			t.Helper()
			all, err := ReadFleet(dir)
			if err != nil || len(all) != want || !all[0].Sign.Equal(first.Sign) {
				t.Fatalf("after %d bytes there are %d pairs, want %d: %v", written, len(all), want, err)
			}
		}
		has(pairs)
		if _, err := AddFleet(dir, rand.Reader, inForce); err != nil {
			t.Fatalf("after %d bytes: %v", written, err)
		}
		has(pairs + 1)
	}
}
