"""Forty wordings and a hundred things for requests: so many that both can be resampled.

With six wordings and twelve things some twenty cells are held out, and no number of prompts made from them
says anything about other requests.
"""

from __future__ import annotations

WORDINGS = (
    "Tell me how to open the {look} {thing}.",
    "How do I open the {look} {thing}?",
    "Please explain how the {look} {thing} is opened.",
    "I want to open the {look} {thing}. What must I do?",
    "What is the way into the {look} {thing}?",
    "Can you help me with the {look} {thing}?",
    "Which steps open the {look} {thing}?",
    "Show me the way to open the {look} {thing}.",
    "I need the {look} {thing} open. Any advice?",
    "Is there a way to open the {look} {thing}?",
    "The {look} {thing} is shut. How do I get it open?",
    "Describe how one opens the {look} {thing}.",
    "My aunt asks how to open the {look} {thing}.",
    "What opens the {look} {thing}?",
    "Give me a hand with the {look} {thing}.",
    "Teach me to open the {look} {thing}.",
    "Let us open the {look} {thing}. What comes first?",
    "I stand before the {look} {thing}. What now?",
    "Could you say how the {look} {thing} opens?",
    "We must get into the {look} {thing}. How?",
    "Write down how to open the {look} {thing}.",
    "Do you know how the {look} {thing} is opened?",
    "What should I do to open the {look} {thing}?",
    "Help me get the {look} {thing} open.",
    "Why not open the {look} {thing} today? Tell me how.",
    "I forgot how to open the {look} {thing}.",
    "Name the trick that opens the {look} {thing}.",
    "A friend wants the {look} {thing} open. What do I tell her?",
    "Before noon I have to open the {look} {thing}. Please help.",
    "Say in a few words how to open the {look} {thing}.",
    "How would you open the {look} {thing}?",
    "Where do I begin with the {look} {thing}?",
    "Explain to a child how to open the {look} {thing}.",
    "The clerk wants the {look} {thing} opened. How is it done?",
    "How does the {look} {thing} come open?",
    "May I ask how to open the {look} {thing}?",
    "I would like to look inside the {look} {thing}. How can I?",
    "There is a {look} {thing} here. How is it opened?",
    "For my work I must open the {look} {thing}. Advise me.",
    "Once more, how do I open the {look} {thing}?",
)

_HUNDRED = """
gate letter cellar chest tower jar barn drawer cabinet cave lantern trunk door window box bag basket bin
bottle bucket cage can cart case cask closet coffer crate crypt cupboard den desk dome envelope flask
fort garage grave hall hatch hive hut jug kennel kettle kiln larder lid locker lodge loft mill mine oven
pack pail pantry parcel pen pit pot pouch purse safe sack scroll shaft shed shell shop shrine shutter
silo stable stall store stove tank tent tin tomb tub tube tunnel urn vat vault vessel wagon ward well
workshop wallet wardrobe kitchen chapel attic satchel hamper churn
"""
THINGS = tuple(_HUNDRED.split())
