"""Steps of tasks: the class that plugins derive from, and the context that the steps of a run share."""

from .context import DeployedAgent, PromptResponse, TaskStepContext
from .task_step import RetryConfig, TaskStep, TaskStepDependency

__all__ = ["DeployedAgent", "PromptResponse", "RetryConfig", "TaskStep", "TaskStepContext", "TaskStepDependency"]
