package app

import (
	"context"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/artifactstore/removal"
)

// Artifacts is the store's artifacts, for listing, getting and putting them by hand.
func (a *App) Artifacts(ctx context.Context) (*artifactstore.Library, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	return artifactstore.New(s), nil
}

// ArtifactRemover deletes and prunes the store's artifacts.
func (a *App) ArtifactRemover(ctx context.Context) (*removal.Remover, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	return removal.New(s, s.Runs(), a.kinds(ctx)), nil
}

// ArtifactType is the type of artifact that people mean by a word: its name, with hyphens too, or an alias of the configuration.
func (a *App) ArtifactType(word string) (string, error) {
	if typ, ok := a.Config().TypeAliases()[word]; ok {
		word = typ
	}
	return artifactstore.TypeOf(word)
}
