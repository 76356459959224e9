package app

import (
	"context"
	"path/filepath"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/control"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/world"
	"agentenv.internal/agentenv/internal/store"
)

// trajectories is the folder of what agents are doing.
func (a *App) trajectories() string { return filepath.Join(a.Config().StateRoot(), "trajectories") }

// getAgents is what deploys agents in this process.
func (a *App) getAgents(ctx context.Context) (*deploy.Agents, error) {
	return a.agents.get(func() (*deploy.Agents, error) {
		s, err := a.Store(ctx)
		if err != nil {
			return nil, err
		}
		w, err := a.getWorld(ctx)
		if err != nil {
			return nil, err
		}
		envs, err := a.getEnvs(ctx)
		if err != nil {
			return nil, err
		}
		models, err := a.Models(ctx)
		if err != nil {
			return nil, err
		}
		return deploy.NewAgents(w.deploy, envs, deploy.AgentOptions{
			Models: models, Store: s, Redact: &a.redact, Release: Version,
			Default: func(ctx context.Context) (string, error) { return a.Config().DefaultAgent(ctx, a.secrets) },
			Records: a.trajectories(), Ask: a.opt.Ask, Makers: deploy.CLIMakers(envs),
		}), nil
	})
}

// agentExecutors are what does the work of step types that need agents.
func agentExecutors(s store.Store, e *deploy.Envs, a *deploy.Agents, human func(context.Context) (string, error)) map[string]step.Executor {
	return map[string]step.Executor{
		"add_skills":              data.NewAddSkills(s, a, e),
		"deploy_agent":            world.NewDeployAgent(a, s),
		"deploy_human_agent":      world.NewDeployHumanAgent(a, human),
		"install_agent":           world.NewInstallAgent(a),
		"peer_agents":             control.NewPeerAgents(a),
		"prompt_agent":            act.NewPromptAgent(a, e, bundlerun.NewObjects(s), s),
		"register_agent_triggers": control.NewRegisterAgentTriggers(a),
		"snapshot_agent_state":    data.NewSnapshotAgentState(s, a, e),
	}
}
