"""The support desk of Larkspur & Loam, a plant shop that does not exist: the system that the demo evaluates."""

from support_desk.agent import Answer, Model, Step, SupportDesk
from support_desk.shop import Shop, open_shop

__all__ = ["Answer", "Model", "Shop", "Step", "SupportDesk", "open_shop"]
