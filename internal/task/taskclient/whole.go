package taskclient

import (
	"context"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// View is a task with all its effects and approvals, and without its events.
func View(ctx context.Context, call func(ctx context.Context, method string, params, result any) error, id string) (*taskapi.View, error) {
	v, none := new(taskapi.View), 0
	if err := call(ctx, "task.get", &taskapi.GetParams{Ref: taskapi.Ref{TaskID: id}, Events: &none}, v); err != nil {
		return nil, err
	}
	return v, Whole(ctx, call, v)
}

// Whole reads what a view lacks of a task's effects and approvals, of which it has the newest
// alone. A decision by these lists needs them whole: an effect that is left out would be taken for
// none.
func Whole(ctx context.Context, call func(ctx context.Context, method string, params, result any) error, v *taskapi.View) error {
	get := func(part, after string) (*taskapi.View, error) {
		none, page := 0, new(taskapi.View)
		return page, call(ctx, "task.get", &taskapi.GetParams{Ref: taskapi.Ref{TaskID: v.ID}, Events: &none, Part: part, After: after}, page)
	}
	err := whole(v, "effects", &v.Effects, get, func(page *taskapi.View) []task.Effect { return page.Effects }, func(e *task.Effect) string { return e.ID })
	if err != nil {
		return err
	}
	return whole(v, "approvals", &v.Approvals, get, func(page *taskapi.View) []task.Approval { return page.Approvals }, func(a *task.Approval) string { return a.ID })
}

// whole reads one list from its beginning on, if the view lacks a part of it.
func whole[T any](v *taskapi.View, part string, list *[]T, get func(part, after string) (*taskapi.View, error), of func(*taskapi.View) []T, id func(*T) string) error {
	if !slices.Contains(v.More, part) {
		return nil
	}
	var all []T
	for after := ""; ; after = id(&all[len(all)-1]) {
		page, err := get(part, after)
		if err != nil {
			return err
		}
		all = append(all, of(page)...)
		if !slices.Contains(page.More, part) {
			break
		}
		if len(of(page)) == 0 {
			return fmt.Errorf("one of the %s of task %s is larger than the daemon shows", part, v.ID)
		}
	}
	*list, v.More = all, slices.DeleteFunc(v.More, func(name string) bool { return name == part })
	return nil
}
