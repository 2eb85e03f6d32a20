"""A Hugging Face transformer adapted to signals: patches are its tokens; a linear layer reads their mean output."""

from __future__ import annotations

from torch import Tensor, nn


class Patched(nn.Module):
    def __init__(self, backbone: nn.Module, patch: int, classes: int) -> None:
        super().__init__()
        width = int(backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.patch = patch
        self.ends = nn.ModuleDict({"embed": nn.Linear(patch, width), "output": nn.Linear(width, classes)})
        self.backbone = backbone
        causal = hasattr(backbone.config, "use_cache")  # training has no use for a KV cache
        self._settings = {"use_cache": False} if causal else {}

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.ends["embed"](x.view(len(x), -1, self.patch))
        hidden = self.backbone(inputs_embeds=tokens, **self._settings).last_hidden_state
        logits: Tensor = self.ends["output"](hidden.mean(1))
        return logits
