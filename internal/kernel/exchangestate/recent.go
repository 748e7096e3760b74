package exchangestate

import (
	"context"
	"errors"
	"sync"

	"github.com/openclawos/ocipd/internal/store"
)

// recent caches values of the store by key, including the absence of a value. A value that was read
// never replaces one that was committed in the meantime.
type recent[K comparable, V any] struct {
	known *cache[K, V]
	// read asks the store. An [store.ErrNotFound] means the zero value.
	read func(context.Context, K) (V, error)
	// reading is held from a read of the store until its result is cached, and exclusively during
	// forget.
	reading sync.RWMutex
}

func newRecent[K comparable, V any](size int, read func(context.Context, K) (V, error)) *recent[K, V] {
	return &recent[K, V]{known: newCache[K, V](size), read: read}
}

// of returns the store's value, the zero value if it has none.
func (r *recent[K, V]) of(ctx context.Context, key K) (V, error) {
	if value, ok := r.known.get(key); ok {
		return value, nil
	}
	r.reading.RLock()
	defer r.reading.RUnlock()
	value, err := r.read(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return value, err
	}
	value, _ = r.known.getOrAdd(key, value)
	return value, nil
}

// put caches a value of a durable change.
func (r *recent[K, V]) put(key K, value V) { r.known.add(key, value) }

// shrink empties the cache.
func (r *recent[K, V]) shrink() {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.known.empty()
}

// forget has a commit delete the store's values of some keys.
func (r *recent[K, V]) forget(which func(K) bool, commit func() (store.Receipt, error)) (store.Receipt, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	receipt, err := commit()
	r.known.remove(which)
	return receipt, err
}
