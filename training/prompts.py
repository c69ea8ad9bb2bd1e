"""Prompts for training and for counting tokens: templates over topics, arithmetic, code, lists.

The built-in bench set (assets/prompts) and tests/fixtures/heldout.jsonl are never among them.
"""
import json
import pathlib
import random

TOPICS = """gravity|volcanoes|the water cycle|photosynthesis|the moon|ocean currents|earthquakes|vaccines|
the human heart|sleep|healthy eating|running|swimming|chess|jazz|the violin|painting|photography|poetry|
public speaking|job interviews|budgeting|small businesses|remote work|teamwork|time management|cooking rice|
baking bread|coffee|tea|gardening|house plants|cats|dogs|bees|penguins|whales|rainforests|deserts|glaciers|
solar energy|wind power|electric cars|bicycles|trains|airplanes|bridges|maps|the internet|databases|
cybersecurity|robots|machine learning|video games|ancient Rome|ancient Egypt|the Middle Ages|democracy|
the United Nations|human rights|philosophy|psychology|memory|happiness|friendship|stress|first aid|
allergies|libraries|museums|recycling|air quality|astronomy|black holes|algebra|geometry|probability""".replace("\n", "").split("|")
CHAT = ["What is {t}?", "Explain {t} in simple terms.", "Give me five facts about {t}.",
        "Write a short introduction to {t}.", "What are common mistakes about {t}?",
        "Write a short story about {t}.", "Write a poem about {t}.", "Why is {t} important?",
        "List three advantages and three disadvantages of {t}.", "Write an email to a friend about {t}.",
        "Make a numbered list of tips about {t}.", "How has {t} changed over time?",
        "Suggest an outline for an essay on {t}.", "Summarize the key ideas of {t}."]
NAMES = ["Anna", "Ben", "Carla", "David", "Emma", "Hugo", "Ivy", "Liam", "Maya", "Noah", "Rosa", "Zoe"]
THINGS = ["apples", "books", "marbles", "pencils", "cookies", "coins", "cards", "tickets"]
LANGUAGES = ["Python", "JavaScript", "C", "Java", "Rust", "SQL"]
TASKS = ["sorts a list of numbers", "counts the vowels of a string", "finds the largest of three numbers",
         "checks whether a number is prime", "computes the greatest common divisor", "removes duplicates from a list",
         "reads a file and counts its lines", "converts Celsius to Fahrenheit", "prints a multiplication table",
         "searches a sorted list", "sums the even numbers of a list", "reverses a linked list",
         "parses a date", "draws a rectangle of stars", "groups words by their length"]


def arithmetic(r):
    a, b, c, n, t = r.randint(2, 60), r.randint(2, 30), r.randint(2, 12), r.choice(NAMES), r.choice(THINGS)
    return r.choice([
        f"{n} has {a + b} {t} and gives away {b}. How many are left?",
        f"{n} buys {c} boxes with {b} {t} each. How many {t} is that?",
        f"What is {a * 3} + {b * 7}?", f"What is {c * b} divided by {c}?", f"What is {c * 5}% of {a * 10}?",
        f"Solve for x: {c}x + {b} = {c * a + b}.", f"A rectangle is {a} cm by {b} cm. What is its area?",
        f"A train travels {a + 40} km per hour for {c} hours. How far does it go?",
        f"What comes next: {a}, {a + c}, {a + 2 * c}, {a + 3 * c}?", f"What is the average of {a}, {b} and {c}?"])


def held_out():
    """Prompts that measurements use; none of them may be trained on."""
    root = pathlib.Path(__file__).parent.parent
    files = [*root.glob("assets/prompts/*.jsonl"), root / "tests/fixtures/heldout.jsonl"]
    return {turn for f in files for line in f.read_text().splitlines() if line
            for turn in json.loads(line)["turns"]}


def prompts(count, seed=0):
    """`count` different prompts: 45 % chat, 25 % arithmetic, 30 % code."""
    r, seen, out = random.Random(seed), held_out(), []
    while len(out) < count:
        kind = r.random()
        if kind < 0.45:
            text = r.choice(CHAT).format(t=r.choice(TOPICS))
        elif kind < 0.70:
            text = arithmetic(r)
        else:
            text = f"Write a {r.choice(LANGUAGES)} {r.choice(['function', 'program', 'example'])} that {r.choice(TASKS)}."
        if text not in seen:
            seen.add(text)
            out.append(text)
    return out
