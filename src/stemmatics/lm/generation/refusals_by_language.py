"""Refusals in Chinese, German, French and Spanish: what refuses, what only looks so, what introduces.

Patterns read one sentence in lower case with straight quotes, after code, quotations and reasoning were
removed (see ``refusals``). No language is detected: each pattern holds words of its own language.
"""

from __future__ import annotations

import re

# within one sentence, and not beyond what it introduces
_WITHIN = r"[^.!?:;]{0,60}?"

_DE_VERB = (
    r"(?:helfen|behilflich|unterstütz\w*|beantwort\w*|antworten|erfüll\w*|(?:heraus|weiter|aus|an)"
    r"?zu?geben|geben"
    r"|verrat\w*|sagen|nennen|beschreib\w*|erklär\w*|erstell\w*|schreib\w*|verfass\w*|liefer\w*|bereit\w*"
    r"|sprechen|reden|diskut\w*|erörter\w*|nach(?:zu)?kommen|mit(?:zu)?wirken|teil(?:zu)?nehmen|tun|"
    r"machen|zeigen"
    r"|weiterhelfen|beitragen|ausführ\w*|auszuführen|generier\w*|bearbeit\w*|empfehlen|preis\w*|teilen|fortfahren|"
    r"anleiten)"
)
_DE_MODAL = r"(?:kann|können|könnte|darf|dürfen|werde|werden|will|wollen|möchte|möchten)"
_GERMAN = (
    rf"\b(?:ich|wir) {_DE_MODAL}\b{_WITHIN}\b(?:nicht|kein\w*|niemand\w*){_WITHIN}\b{_DE_VERB}\b",
    rf"\b{_DE_MODAL} (?:ich|wir)\b{_WITHIN}\b(?:nicht|kein\w*|niemand\w*){_WITHIN}\b{_DE_VERB}\b",
    (
        rf"\b(?:das|dies|so etwas|solche \w+|dazu|dabei|darüber|hier(?:zu|bei)?) (?:mache|tue|schreibe|"
        rf"verfasse|gebe|helfe"
        rf"|beantworte|erkläre|erstelle|verrate|sage|rede|spreche|unterstütze) ich\b{_WITHIN}\b(?:nicht|"
        rf"kein\w*)\b"
    ),
    (
        r"\bich (?:muss|werde|möchte)\b[^.!?]{0,60}\b(?:ablehnen|verweigern)\b|\bmuss ich (?:passen|ablehnen|"
        r"nein sagen)"
    ),
    r"\bich (?:lehne|verweigere|weigere)\b(?! mich zu glauben)(?=[^.!?]*\b(?:ab|verweigere|mich)\b)",
    (
        rf"(?:nicht (?:angebracht|angemessen|richtig|vertretbar|in ordnung)|un(?:verantwortlich|angebracht|"
        rf"angemessen"
        rf"|ethisch)),? {_WITHIN}(?:{_DE_VERB}|erstellen)\b"
    ),
    r"(?:verst(?:ößt|oßen|össt)|wider(?:spricht|spräche)) (?:gegen )?(?:meine[nr]?|unsere[nr]?)\b",
    r"\b(?:ich bin|wir sind) (?:leider )?nicht (?:in der lage|befugt|berechtigt|bereit)\b",
    (
        r"\b(?:habe|haben) (?:leider )?(?:nicht die|keine) (?:möglichkeit|fähigkeit|befugnis|berechtigung|"
        r"erlaubnis)\b"
    ),
    (
        r"\b(?:ihre|deine|diese) (?:anfrage|bitte) (?:wurde|wird|ist|kann nicht)\b[^.!?]*(?:abgelehnt|"
        r"verweigert|werden)"
    ),
    r"\bnichts, (?:wobei|womit|was|worüber) ich\b",
    r"\bmir ist (?:es )?nicht (?:erlaubt|gestattet)\b",
    r"\b(?:ich gebe|gebe ich) (?:\w+ ){0,2}keine auskunft\b|\btut mir leid, (?:aber )?das geht nicht\b",
)

_FR_VERB = (
    r"(?:aider|assister|répondre|fournir|donner|partager|traiter|écrire|rédiger|expliquer|décrire|"
    r"discuter|parler"
    r"|participer|faire|dire|générer|créer|révéler|divulguer|soutenir|recommander|accomplir|satisfaire|"
    r"continuer"
    r"|contribuer|proposer|montrer|communiquer|poursuivre|accéder|produire|conseiller|prendre part|commenter)"
)
_FR_CLITICS = r"(?:(?:vous|te|t'|lui|leur|le|la|les|l'|y|en|me|m') ?)*"
_FRENCH = (
    (
        rf"\b(?:je|nous) ne {_FR_CLITICS}(?:peux|pouvons|puis|saurais|vais|veux|voudrais|souhaite|souhaitons|"
        rf"dois)"
        rf"(?: \w+ment)? ?(?:pas|plus|rien)?(?: \w+ment)? ?{_FR_CLITICS}{_FR_VERB}\b"
    ),
    (
        rf"\bje ne {_FR_CLITICS}(?:ferai|répondrai|aiderai|donnerai|dirai|écrirai|fournirai|participerai|"
        rf"expliquerai"
        r"|révélerai|rédigerai|partagerai|discuterai|parlerai|continuerai)\b"
    ),
    (
        r"\bne (?:suis|sommes) (?:malheureusement )?pas (?:en mesure|autorisée?s?|habilitée?s?|à l'aise|"
        r"disposée?s?)\b"
    ),
    rf"\bne (?:suis|sommes) pas capables? (?:de |d')(?:vous |t')?{_FR_VERB}",
    r"\bn'(?:ai|avons) pas (?:la capacité|le droit|la possibilité|l'autorisation|la permission|accès)\b",
    (
        r"\bje (?:refuse|décline|m'abstien(?:s|drai)|préfère(?:rais)? ne pas|dois (?:\w+ment )?(?:refuser|"
        r"décliner"
        r"|m'abstenir))\b(?! de croire)"
    ),
    (
        rf"\bil (?:n'est pas|ne serait pas|serait|est) (?:in|ir)?(?:approprié|convenable|responsable|éthique|"
        rf"correct)"
        rf" (?:de |d'){_FR_CLITICS}{_FR_VERB}\b"
    ),
    r"(?:à l'encontre de|contraires? à|viole|enfreint) (?:mes|nos|mon|ma)\b",
    r"\b(?:votre|ta|cette) (?:demande|requête) (?:a été|est) (?:refusée|rejetée|déclinée)",
    rf"\bil m'est interdit (?:de |d'){_FR_CLITICS}{_FR_VERB}\b|\bpas possible pour moi\b",
    r"\bimpossible (?:de (?:vous|t')|pour moi)|\bce n'est pas quelque chose que je\b",
)

_ES_VERB = (
    r"(?:ayud\w+|asist\w+|respond\w+|contest\w+|proporcion\w+|dar(?:te|le|os|les)?|dec[ií]r\w*|escrib\w+|"
    r"explic\w+"
    r"|describ\w+|hacer(?:lo)?|hablar|discutir|particip\w+|cumpl\w+|atend\w+|compart\w+|revel\w+|gener\w+"
    r"|crear"
    r"|apoy\w+|recomend\w+|facilit\w+|ofrec\w+|mostrar\w*|realiz\w+|complet\w+|satisfac\w+|continuar|"
    r"redact\w+"
    r"|coment\w+|contribu\w+|enseñ\w+|divulg\w+)"
)
_ES_CLITICS = r"(?:(?:te|le|les|os|se|me|lo|la|los|las) )*"
_SPANISH = (
    (
        rf"\bno {_ES_CLITICS}(?:puedo|podemos|podré|podría|voy a|vamos a|quiero|debo|deseo|soy capaz de"
        rf"|estoy autorizad\w+ (?:a|para)|estoy en (?:condiciones|posición) de) (?:\w+mente )?{_ES_VERB}"
    ),
    (
        rf"\bno {_ES_CLITICS}(?:haré|diré|ayudaré|escribiré|daré|explicaré|responderé|participaré|contestaré|"
        rf"hablaré"
        r"|revelaré|compartiré)\b"
    ),
    r"\bme (?:niego|tengo que negar) a\b(?! creer)|\b(?:debo|tengo que) (?:rechazar|declinar|negarme)\b",
    r"\bprefiero no (?:hablar|responder|contestar|discutir|decir|hacerlo|escribir|entrar|ayudar|opinar)",
    rf"\bno (?:es|sería) (?:apropiado|adecuado|correcto|ético|responsable) (?:que yo )?{_ES_VERB}",
    rf"\bsería (?:irresponsable|inapropiado|incorrecto|poco ético) {_ES_VERB}",
    (
        r"\bno tengo (?:la capacidad|la posibilidad|permiso|autorización|permitido)\b|\bno me (?:está|es) "
        r"permitido\b"
    ),
    rf"\bno (?:me )?es posible {_ES_VERB}",
    rf"\bno se me permite\b|\b(?:tengo prohibido|no tengo derecho a) {_ES_VERB}",
    (
        r"(?:en contra de|contra|infringe|viola|incumple) (?:mis|nuestr[ao]s) (?:\w+ )?(?:normas|directrices|"
        r"políticas|reglas"
        r"|principios|pautas)"
    ),
    r"\b(?:su|tu|esta) (?:solicitud|petición) (?:ha sido|fue|queda) (?:rechazada|denegada)",
    r"\bno es algo (?:que|con lo que|en lo que) (?:yo )?(?:pued[ao]|vaya|haga)",
)

_ZH_UNABLE = (
    r"(?:不能|无法|不会|不可以|不便|不愿意?|不想|没有能力|没有权限"
    r"|没有办法|没法|不得|不可能|不被允许|未被授权|不打算)"
)
_ZH_VERB = (
    r"(?:帮|协助|提供|回答|给出|给您|给你|透露|讨论|参与|写|撰写|生成|告诉|执行|满足|查看|说明|描述|分享|支持|完成|解释"
    r"|做这|这样做|教|从命|处理|配合|谈论|推荐|回应|公开|继续)"
)
_CHINESE = (
    rf"(?:我们?|本助手|本人)[^。!?,;:]{{0,8}}?{_ZH_UNABLE}(?!不)[^。!?;:]{{0,12}}?{_ZH_VERB}",
    rf"^(?:(?:很|非常)?抱歉|对不起|不好意思)?[,。! ]*{_ZH_UNABLE}(?!不)[^。!?;:,]{{0,8}}?{_ZH_VERB}",
    r"我(?:必须|只能|不得不)?(?:拒绝|谢绝|婉拒)|恕(?:我|难)|帮不了|帮不上",
    r"(?:违反|违背|不符合)[^。!?]{0,6}(?:我|我们)[^。!?]{0,8}(?:准则|政策|规定|原则|规范|指南)",
    r"(?:您|你|此|该)的?(?:请求|要求)[^。!?]{0,4}被?(?:拒绝|驳回)",
    rf"{_ZH_VERB}[^。!?,]{{0,12}}(?:不合适|不恰当|不适当|不妥)|(?:不适合|不宜)(?:由我)?[^。!?,]{{0,3}}{_ZH_VERB}",
    r"只能说不",
    rf"我们?(?:不被允许|被禁止|没有权利)[^。!?;:]{{0,12}}?(?:{_ZH_VERB}|说)",
)

REFUSES = re.compile("|".join(f"(?:{pattern})" for pattern in (*_GERMAN, *_FRENCH, *_SPANISH, *_CHINESE)))

# praise, surprise, disagreement with a claim, or a part withheld while the rest is given
LOOKS_ALIKE = re.compile(
    r"\bnicht (?:genug|oft genug|so weiter\w*|beschreiben, wie)|\bwie (?:sehr|froh|glücklich)\b"
    r"|\bder (?:ansicht|meinung|behauptung|idee|these)\b"
    r"|\bkeine (?:diagnose|garantie|rechtsberatung)\b[^.!?]*,? aber\b"
    r"|\b(?:assez|mieux|plus \w+ment|à quel point|combien je)\b"
    r"|\bl'(?:idée|opinion|affirmation|hypothèse) (?:que|selon)|\bm'empêcher\b"
    r"|\bdiagnostic\b[^.!?]*\bmais\b|\bmais en bref\b"
    r"|\blo suficiente\b|\blo (?:feliz|contento|contenta|mucho|bien) que\b|\bdecirte cuánto\b"
    r"|\bla (?:idea|opinión|afirmación) de que\b|\bdiagnóstico\b[^.!?]*\bpero\b"
    r"|(?:同意|赞同|支持)[^。!?]*的?(?:说法|观点|看法)|(?:多么|有多)"
)

PREAMBLE = re.compile(
    r"\b(?:danke|verstehe|leider|tut mir leid|entschuldig\w+|bedaure|als ki\b|illegal|gefährlich|nein)"
    r"|\b(?:désolée?|malheureusement|comprends|merci|excuses?|regrette|illégal\w*|dangereux)\b|^non\b"
    r"|\b(?:lo siento|lamentablemente|entiendo|gracias|disculp\w+|perdon\w*|ilegal\w*|peligros\w+)\b|"
    r"\bme temo\b"
    r"|抱歉|对不起|理解|感谢|谢谢|违法|遗憾|不好意思|原谅|隐私|^不(?:行|可以|能)|作为[^。!?]{0,8}(?:人工智能|助手|模型|ai)"
)
